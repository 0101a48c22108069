-- The writer and the service own no table and may only add to the books. Roles belong to the whole server, so they are
-- made where that is allowed and still missing, and stay when the schema goes.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['tollgate_writer', 'tollgate_service'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN NULL;
                WHEN insufficient_privilege THEN
                    RAISE NOTICE 'role % is missing and may not be created here', role;
                    CONTINUE;
            END;
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
        EXECUTE format('GRANT SELECT, INSERT ON entries, batches TO %I', role);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE ON reservations, balances, usage_hourly, subjects, cursors, leases, gaps, quarantine, repeats TO %I', role);
        EXECUTE format('GRANT SELECT ON installation, epochs TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION ensure_entries_month(date) TO %I', role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE ON installation, epochs, quota_periods, policy_version, counter_generations, api_keys, tenants TO tollgate_service;
        GRANT SELECT, INSERT, UPDATE, DELETE ON policy_objects, tenants TO tollgate_service;
        GRANT SELECT, INSERT ON policy_history, audit_log TO tollgate_service;
        GRANT SELECT ON __diesel_schema_migrations TO tollgate_service;
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION ensure_entries_month(date) FROM PUBLIC;
