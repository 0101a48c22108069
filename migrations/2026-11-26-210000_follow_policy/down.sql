DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        REVOKE DELETE ON quota_periods FROM tollgate_service;
    END IF;
END
$$;
DROP INDEX quota_periods_that_follow;
ALTER TABLE quota_periods DROP COLUMN followed_version;
