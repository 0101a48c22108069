-- What came over into these periods, the amount that ends first before the others, and what of it returned of carried
-- holds, by the cut after which it came.
SELECT r.tenant, r.meter, r.period_start, r.ends_at, r.periods_left, r.amount, r.rolled,
    t.epochs AS grow_epochs, t.sequences AS grow_sequences, t.amounts AS grow_amounts
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
-- Looked up one by one: a plan that is made while the table is empty would read all of it later.
CROSS JOIN LATERAL (
    SELECT * FROM rolled_amounts r
    WHERE r.tenant = w.tenant AND r.meter = w.meter AND r.period_start = w.period_start OFFSET 0
) r
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(t.epoch ORDER BY t.epoch, t.sequence), '{}') AS epochs,
        coalesce(array_agg(t.sequence ORDER BY t.epoch, t.sequence), '{}') AS sequences,
        coalesce(array_agg(t.amount ORDER BY t.epoch, t.sequence), '{}') AS amounts
    FROM rolled_returns t
    WHERE t.tenant = r.tenant AND t.meter = r.meter AND t.period_start = r.period_start AND t.ends_at = r.ends_at
) t
ORDER BY r.tenant, r.meter, r.period_start, r.ends_at
