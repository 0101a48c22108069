-- A period that is opened ahead follows policy until it begins.
ALTER TABLE quota_periods
    -- The version of the policy whose changes its terms have; NULL: it follows policy no more.
    ADD COLUMN followed_version bigint;
CREATE INDEX quota_periods_that_follow ON quota_periods (tenant, meter, period_start) WHERE followed_version IS NOT NULL;

-- Those that are opened already, but for those that a change of plan has raised or lowered by other means.
UPDATE quota_periods q SET followed_version = 0
WHERE q.period_start > now() AND NOT EXISTS (
    SELECT FROM quota_changes c WHERE c.tenant = q.tenant AND c.meter = q.meter AND c.period_start = q.period_start
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        -- One whose quota is gone before it begins is not open any more.
        GRANT DELETE ON quota_periods TO tollgate_service;
    END IF;
END
$$;
