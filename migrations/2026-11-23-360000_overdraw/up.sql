-- How far below zero a quota may go: fixed when the period opens, as the included amount. A quota that only measures has
-- more than is ever used.
ALTER TABLE quota_periods ADD COLUMN overdraft numeric(28, 9) NOT NULL DEFAULT 0;
ALTER TABLE quota_periods ADD CONSTRAINT overdraft_is_bounded CHECK (overdraft >= 0 AND overdraft < 1e18) NOT VALID;

CREATE OR REPLACE VIEW quota_capacities AS
SELECT q.tenant, q.meter, q.period_start, q.period_end, q.decimals, q.version,
    (greatest(
        coalesce(b.available + b.reserved + b.consumed - b.reserved_beside_gate - b.consumed_beside_gate, 0), 0
    ) + q.overdraft)::numeric(28, 9) AS capacity
FROM quota_periods q
LEFT JOIN balances b USING (tenant, meter, period_start);
