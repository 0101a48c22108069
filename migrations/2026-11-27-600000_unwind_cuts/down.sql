DO $$
BEGIN
    IF EXISTS (SELECT FROM unwindings) THEN
        RAISE EXCEPTION 'use was taken back from before a cut: without these notes the books cannot be folded again';
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        REVOKE UPDATE ON grant_burns FROM tollgate_service;
    END IF;
END
$$;

DROP INDEX adjustments_taking_back;
DROP TABLE unwindings;
