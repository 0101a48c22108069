DROP VIEW balances_by_entries;
CREATE VIEW balances_by_entries AS
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

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT ON balances_by_entries TO %I', role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_writer') THEN
        REVOKE UPDATE (version) ON tenants, quota_periods FROM tollgate_writer;
        REVOKE SELECT, INSERT, UPDATE ON untold_capacities FROM tollgate_writer;
        REVOKE SELECT, UPDATE (rings) ON jobs FROM tollgate_writer;
        REVOKE SELECT ON calendars, period_closures FROM tollgate_writer;
    END IF;
END
$$;
ALTER TABLE period_closures DROP COLUMN is_final;
ALTER TABLE cuts DROP COLUMN consumed_of_carried;
ALTER TABLE balances DROP COLUMN consumed_of_carried;
DROP TABLE carried_returns;
DROP TABLE carried_holds;
