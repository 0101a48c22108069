-- What statements say was used, beside the books of their periods. What corrects an earlier period that is billed is in
-- a note to that one's statement.
WITH said AS (
    SELECT s.tenant, u.key AS meter, s.period_start, (u.value ->> 'consumed')::numeric AS consumed, (u.value ->> 'overage')::numeric AS overage
    FROM statements s
    CROSS JOIN LATERAL jsonb_each(s.document::jsonb -> 'used') u
    WHERE s.tenant = ANY($1) AND s.corrects IS NULL
), booked AS (
    SELECT b.tenant, b.meter, b.period_start, b.consumed - b.adjusted - c.consumed AS consumed,
        greatest(b.overage - coalesce(k.paid_by_next, 0) - c.consumed, 0) AS overage
    FROM statements s
    JOIN billing g USING (tenant)
    JOIN balances b USING (tenant, period_start)
    LEFT JOIN period_closures k USING (tenant, meter, period_start)
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(l.consumed), 0) AS consumed
        FROM corrections l
        WHERE l.tenant = b.tenant AND l.meter = b.meter AND l.booked_in = b.period_start AND l.period_start >= g.begun_at
    ) c
    WHERE s.tenant = ANY($1) AND s.corrects IS NULL
)
SELECT concat_ws(' ', 'statement of', tenant, meter, period_start AT TIME ZONE 'UTC') AS what,
    concat('says ', s.consumed, ' used and ', s.overage, ' overage, the books ', b.consumed, ' and ', b.overage) AS detail
FROM said s
FULL JOIN booked b USING (tenant, meter, period_start)
WHERE coalesce(s.consumed, 0) <> coalesce(b.consumed, 0) OR coalesce(s.overage, 0) <> coalesce(b.overage, 0)
LIMIT $2
