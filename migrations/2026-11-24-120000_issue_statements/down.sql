DROP TABLE statements;
DROP TABLE billing;
DROP TABLE corrections;
ALTER TABLE policy_history DROP COLUMN effective_at;
-- The words of accounts stay: entries may have them.
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
        - coalesce(sum(amount) FILTER (WHERE credit = 'consumed' AND NOT by_gate), 0) AS consumed_beside_gate,
    coalesce(sum(amount) FILTER (WHERE credit = 'reserved' AND debit = 'consumed' AND carried), 0) AS consumed_of_carried
FROM (SELECT *, class = 'usage' AND NOT carried AS by_gate FROM entries) e
GROUP BY tenant, meter, period_start;
