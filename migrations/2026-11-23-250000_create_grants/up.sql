-- Grants: amounts beside what a plan includes, each an operation of its own that is repeatable by its key.
CREATE TABLE grants (
    tenant text NOT NULL,
    id uuid NOT NULL,
    meter text NOT NULL,
    decimals smallint NOT NULL,
    amount numeric(28, 9) NOT NULL CONSTRAINT grant_amount_is_positive_and_bounded CHECK (amount > 0 AND amount < 1e18),
    kind text NOT NULL CONSTRAINT grant_kind_is_known CHECK (kind IN ('promotional', 'paid')),
    priority smallint NOT NULL CONSTRAINT grant_priority_is_0_to_100 CHECK (priority BETWEEN 0 AND 100),
    effective_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    reason text NOT NULL,
    fingerprint bytea NOT NULL CONSTRAINT grant_fingerprint_has_32_bytes CHECK (octet_length(fingerprint) = 32),
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    -- The period in whose books it is; none before it begins.
    period_start timestamptz,
    PRIMARY KEY (tenant, id),
    CONSTRAINT grant_ends_after_it_begins CHECK (expires_at > effective_at)
);
CREATE UNIQUE INDEX grants_by_id ON grants (id);
CREATE INDEX grants_of_meter ON grants (tenant, meter, effective_at);
CREATE INDEX grants_to_begin ON grants (effective_at) WHERE period_start IS NULL;
CREATE INDEX grants_newest_first ON grants (created_at DESC, id DESC);
CREATE INDEX grants_of_tenant_newest_first ON grants (tenant, created_at DESC, id DESC);

-- Quotas whose capacity has changed in the books, until the gate has it.
CREATE TABLE untold_capacities (
    tenant text NOT NULL,
    meter text NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (tenant, meter)
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE ON grants TO tollgate_service;
        GRANT SELECT, INSERT, UPDATE, DELETE ON untold_capacities TO tollgate_service;
    END IF;
END
$$;
