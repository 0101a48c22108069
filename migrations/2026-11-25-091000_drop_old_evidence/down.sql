DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        REVOKE DELETE ON gaps, losses, quarantine FROM tollgate_service;
    END IF;
END
$$;
