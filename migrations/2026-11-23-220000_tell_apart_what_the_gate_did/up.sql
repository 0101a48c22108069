-- What holds and use come to that the gate did not do: holds carried over and corrections, which its counters leave out. Booked
-- by jobs and seldom by the writer, so that what the gate did is the rest, also while an older version books.
ALTER TABLE balances
    ADD COLUMN reserved_beside_gate numeric(28, 9) NOT NULL DEFAULT 0,
    ADD COLUMN consumed_beside_gate numeric(28, 9) NOT NULL DEFAULT 0,
    ADD CONSTRAINT balance_beside_the_gate_is_bounded CHECK (abs(reserved_beside_gate) < 1e18 AND abs(consumed_beside_gate) < 1e18)
        NOT VALID;
CREATE OR REPLACE VIEW balances_by_entries AS
SELECT tenant, meter, period_start,
    coalesce(sum(amount) FILTER (WHERE credit = 'granted'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'granted'), 0) AS granted,
    coalesce(sum(amount) FILTER (WHERE credit = 'rolled_in'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'rolled_in'), 0) AS rolled_in,
    coalesce(sum(amount) FILTER (WHERE credit = 'carried_in'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'carried_in'), 0) AS carried_in,
    coalesce(sum(amount) FILTER (WHERE credit = 'overage'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'overage'), 0) AS overage,
    coalesce(sum(amount) FILTER (WHERE credit = 'adjusted'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'adjusted'), 0) AS adjusted,
    coalesce(sum(amount) FILTER (WHERE debit = 'available'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'available'), 0) AS available,
    coalesce(sum(amount) FILTER (WHERE debit = 'reserved'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'reserved'), 0) AS reserved,
    coalesce(sum(amount) FILTER (WHERE debit = 'consumed'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'consumed'), 0) AS consumed,
    coalesce(sum(amount) FILTER (WHERE debit = 'lapsed'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'lapsed'), 0) AS lapsed,
    coalesce(sum(amount) FILTER (WHERE debit = 'voided'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'voided'), 0) AS voided,
    coalesce(sum(amount) FILTER (WHERE debit = 'rolled_out'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'rolled_out'), 0) AS rolled_out,
    coalesce(sum(amount) FILTER (WHERE debit = 'carried_out'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'carried_out'), 0) AS carried_out,
    coalesce(sum(amount) FILTER (WHERE debit = 'repaid'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'repaid'), 0) AS repaid,
    coalesce(sum(amount) FILTER (WHERE debit = 'reserved' AND NOT by_gate), 0)
        - coalesce(sum(amount) FILTER (WHERE credit = 'reserved' AND NOT by_gate), 0) AS reserved_beside_gate,
    coalesce(sum(amount) FILTER (WHERE debit = 'consumed' AND NOT by_gate), 0)
        - coalesce(sum(amount) FILTER (WHERE credit = 'consumed' AND NOT by_gate), 0) AS consumed_beside_gate
FROM (SELECT *, class = 'usage' AND NOT carried AS by_gate FROM entries) e
GROUP BY tenant, meter, period_start;

-- What the gate is told of a period: what it could use at all, held and used by now or not.
CREATE VIEW quota_capacities AS
SELECT q.tenant, q.meter, q.period_start, q.period_end, q.decimals, q.version,
    greatest(
        coalesce(b.available + b.reserved + b.consumed - b.reserved_beside_gate - b.consumed_beside_gate, 0), 0
    )::numeric(28, 9) AS capacity
FROM quota_periods q
LEFT JOIN balances b USING (tenant, meter, period_start);

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT ON quota_capacities TO %I', role);
    END LOOP;
END
$$;
