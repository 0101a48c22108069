DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_writer') THEN
        REVOKE SELECT ON adjustments FROM tollgate_writer;
    END IF;
END
$$;
