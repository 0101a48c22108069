-- Whoever books cuts no end of a grant while the gate is to take back use of its quota.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_writer') THEN
        GRANT SELECT ON adjustments TO tollgate_writer;
    END IF;
END
$$;
