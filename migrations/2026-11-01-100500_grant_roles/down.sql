-- The privileges go with the tables; only those on the schema stand alone.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['tollgate_writer', 'tollgate_service'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM %I', current_schema(), role);
            EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', current_schema(), role);
            EXECUTE format('REVOKE ALL ON FUNCTION ensure_entries_month(date) FROM %I', role);
        END IF;
    END LOOP;
END
$$;
GRANT EXECUTE ON FUNCTION ensure_entries_month(date) TO PUBLIC;
