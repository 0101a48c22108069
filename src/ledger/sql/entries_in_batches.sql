-- All entries of these tenants, in the order in which their batches were hashed.
SELECT tenant, operation_id, step, line, leg, meter, period_start, credit::text AS credit, debit::text AS debit, amount,
    class::text AS class, ARRAY[excess, late, carried, degraded, corrected] AS flags, happened_at, booked_at, operation, hour_at, subjects,
    chain, batch
FROM entries
WHERE tenant = ANY($1)
ORDER BY chain, batch, tenant COLLATE "C", operation_id, step, line, leg, happened_at
