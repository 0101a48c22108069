-- The entries of these chains up to their openings that stay once a month has left, in the order in which their batches
-- were hashed.
SELECT tenant, operation_id, step, line, leg, meter, period_start, credit::text AS credit, debit::text AS debit, amount,
    class::text AS class, ARRAY[excess, late, carried, degraded, corrected] AS flags, happened_at, booked_at, operation, hour_at, subjects,
    chain, batch
FROM entries
JOIN unnest($1::smallint[], $2::bigint[]) AS o(chain, number) USING (chain)
WHERE batch <= o.number AND NOT (class = 'usage' AND happened_at >= $3 AND happened_at < $4)
ORDER BY chain, batch, tenant COLLATE "C", operation_id, step, line, leg, happened_at
