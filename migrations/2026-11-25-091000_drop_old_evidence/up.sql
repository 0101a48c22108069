-- Retention drops old gaps, losses and settled events of the quarantine.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT DELETE ON gaps, losses, quarantine TO tollgate_service;
    END IF;
END
$$;
