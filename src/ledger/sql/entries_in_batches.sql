-- All entries of these tenants behind the openings, in the order in which their batches were hashed.
SELECT tenant, operation_id, step, line, leg, meter, period_start, credit::text AS credit, debit::text AS debit, amount,
    class::text AS class, ARRAY[excess, late, carried, degraded, corrected] AS flags, happened_at, booked_at, operation, hour_at, subjects,
    chain, batch
FROM entries
LEFT JOIN (SELECT chain, max(number) AS number FROM opening_chains GROUP BY chain) o USING (chain)
WHERE tenant = ANY($1) AND batch > coalesce(o.number, -1)
ORDER BY chain, batch, tenant COLLATE "C", operation_id, step, line, leg, happened_at
