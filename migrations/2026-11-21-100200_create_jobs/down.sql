DROP TABLE job_runs, jobs;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        REVOKE DELETE ON leases FROM tollgate_service;
    END IF;
END
$$;
