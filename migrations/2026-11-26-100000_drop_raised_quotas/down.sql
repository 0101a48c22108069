CREATE TABLE raised_quotas (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    included numeric(28, 9) NOT NULL CONSTRAINT raised_included_is_bounded CHECK (included >= 0 AND included < 1e18),
    PRIMARY KEY (tenant, meter, period_start)
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON raised_quotas TO tollgate_service;
    END IF;
END
$$;
