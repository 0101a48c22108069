-- Adds what returned to grants that go on, by the segment in which it came: after the last cut of its quota before it.
-- The partition's cursor is locked, so every cut before it is made.
INSERT INTO continued_returns (tenant, meter, period_start, grant_id, epoch, sequence, amount)
SELECT w.tenant, w.meter, w.period_start, w.grant_id, coalesce(c.epoch, 0), coalesce(c.sequence, 0), sum(w.amount)
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::uuid[], $5::bigint[], $6::bigint[], $7::numeric[])
    AS w(tenant, meter, period_start, grant_id, epoch, sequence, amount)
LEFT JOIN LATERAL (
    SELECT c.epoch, c.sequence FROM cuts c
    WHERE c.tenant = w.tenant AND c.meter = w.meter AND c.period_start = w.period_start
        AND (c.epoch, c.sequence) <= (w.epoch, w.sequence)
    ORDER BY c.epoch DESC, c.sequence DESC
    LIMIT 1
) c ON true
GROUP BY 1, 2, 3, 4, 5, 6
ON CONFLICT (tenant, meter, period_start, grant_id, epoch, sequence) DO UPDATE SET
    amount = continued_returns.amount + excluded.amount
