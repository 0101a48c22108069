DROP VIEW periods_to_advance;
CREATE OR REPLACE VIEW quota_capacities AS
SELECT q.tenant, q.meter, q.period_start, q.period_end, q.decimals, q.version,
    (greatest(
        coalesce(b.available + b.reserved + b.consumed - b.reserved_beside_gate - b.consumed_beside_gate, 0), 0
    ) + q.overdraft)::numeric(28, 9) AS capacity
FROM quota_periods q
LEFT JOIN balances b USING (tenant, meter, period_start);
DROP TABLE grant_advances;
