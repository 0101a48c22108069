DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_writer') THEN
        REVOKE SELECT ON tenants, policy_history, quota_periods FROM tollgate_writer;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        REVOKE DELETE ON repeats FROM tollgate_service;
    END IF;
END
$$;
DROP INDEX repeats_of_tenant;
DROP INDEX repeats_to_undo;
ALTER TABLE repeats DROP COLUMN undone_sequence, DROP COLUMN undone_at, DROP COLUMN event, DROP COLUMN tenant;
DROP INDEX policy_history_by_policy_version;
DROP TABLE reconciliations;
