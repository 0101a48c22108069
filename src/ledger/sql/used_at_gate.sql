-- What the gate has counted of a meter in an hour, by the subjects and the operation of the reservation that is
-- corrected, and in its period at the most, without what other adjustments are about to take back.
WITH corrected AS (
    SELECT nullif(operation, '') AS operation, subjects FROM reservations
    WHERE partition = get_byte(uuid_send($6), 12) AND id = $6 AND tenant = $1
    UNION
    SELECT nullif(operation, ''), subjects FROM reservations_archive
    WHERE partition = get_byte(uuid_send($6), 12) AND id = $6 AND tenant = $1
), counted AS (
    SELECT coalesce(sum(u.consumed), 0) AS consumed,
        CASE WHEN o.operation IS NOT NULL THEN coalesce(sum(u.consumed) FILTER (WHERE u.operation = o.operation), 0) END AS by_operation
    FROM (SELECT 0::bigint AS subject UNION SELECT unnest(subjects) FROM corrected) s
    LEFT JOIN (SELECT DISTINCT operation FROM corrected) o ON true
    LEFT JOIN usage_hourly u ON u.tenant = $1 AND u.meter = $2 AND u.hour_at = $4 AND u.subject = s.subject
    GROUP BY s.subject, o.operation
)
SELECT (
    least(
        coalesce((
            SELECT consumed - consumed_beside_gate FROM balances WHERE tenant = $1 AND meter = $2 AND period_start = $3
        ), 0),
        (SELECT min(least(consumed, by_operation)) FROM counted)
    ) + coalesce((
        SELECT sum(amount) FROM adjustments
        WHERE tenant = $1 AND meter = $2 AND gate_period = $3 AND state = 'approved' AND amount < 0 AND id <> $5
    ), 0)
)::numeric(28, 9) AS consumed
