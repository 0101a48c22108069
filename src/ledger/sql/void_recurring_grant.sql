-- Of a recurring grant ends what is given of it in periods that have not ended, and itself: where it has not begun, or
-- its own period has ended, nothing of it is left to be given back.
UPDATE grants g SET voided_at = $3, settled_at = CASE WHEN o.is_over THEN $3 END
FROM (
    SELECT o.tenant, o.id, o.period_start IS NULL OR q.period_end <= $3 AS is_over
    FROM grants o
    LEFT JOIN quota_periods q ON q.tenant = o.tenant AND q.meter = o.meter AND q.period_start = o.period_start
    WHERE o.tenant = $1 AND (o.id = $2 OR o.repeats = $2 AND q.period_end > $3) AND o.voided_at IS NULL AND o.settled_at IS NULL
) o
WHERE g.tenant = o.tenant AND g.id = o.id
