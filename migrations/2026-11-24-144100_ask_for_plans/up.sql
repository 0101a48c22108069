-- Tenants ask for other plans, and administrators approve or decline.
CREATE TABLE upgrade_requests (
    tenant text NOT NULL,
    id uuid NOT NULL,
    plan text NOT NULL,
    reason text NOT NULL,
    state text NOT NULL CONSTRAINT upgrade_state_is_known CHECK (state IN ('pending', 'approved', 'declined')),
    requested_at timestamptz NOT NULL,
    requested_by text NOT NULL,
    decided_at timestamptz,
    decided_by text,
    -- From when on the plan holds, where it is approved; and when the tenant got it.
    effective_at timestamptz,
    applied_at timestamptz,
    PRIMARY KEY (tenant, id),
    CONSTRAINT upgrade_is_effective_once_approved CHECK ((state = 'approved') = (effective_at IS NOT NULL))
);
CREATE UNIQUE INDEX upgrade_requests_by_id ON upgrade_requests (id);
CREATE UNIQUE INDEX upgrade_requests_one_pending ON upgrade_requests (tenant) WHERE state = 'pending';
CREATE INDEX upgrade_requests_newest_first ON upgrade_requests (requested_at DESC, id DESC);
CREATE INDEX upgrade_requests_of_tenant ON upgrade_requests (tenant, requested_at DESC, id DESC);
CREATE INDEX upgrade_requests_to_apply ON upgrade_requests (effective_at, id) WHERE applied_at IS NULL AND effective_at IS NOT NULL;

-- What a change of plan has raised the included amount of an open period to, by a grant of the difference.
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
        GRANT SELECT, INSERT, UPDATE, DELETE ON upgrade_requests, raised_quotas TO tollgate_service;
    END IF;
END
$$;
