-- Refused calls that limits with a punishment have counted, summed up by minute. Each row is of one instance, which
-- writes its totals again while the minute goes on.
CREATE TABLE violations (
    id uuid PRIMARY KEY,
    minute timestamptz NOT NULL,
    tenant text NOT NULL,
    limit_id text NOT NULL,
    -- Whom the limit counts: a subject by its keyed hash at the gate, never by its name; both empty for the tenant.
    subject_kind text NOT NULL,
    subject_hash text NOT NULL,
    counted bigint NOT NULL,
    -- How many of them have placed a ban.
    bans bigint NOT NULL,
    -- Calls that were refused because of such a ban.
    under_ban bigint NOT NULL
);
CREATE INDEX violations_newest_first
    ON violations (minute DESC, tenant DESC, limit_id DESC, subject_kind DESC, subject_hash DESC);
CREATE INDEX violations_of_tenants
    ON violations (tenant, minute DESC, limit_id DESC, subject_kind DESC, subject_hash DESC);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON violations TO tollgate_service;
    END IF;
END
$$;
