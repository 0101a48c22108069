-- Where grants begin and end in the consumption of their quota: the writer cuts at boundaries of the outbox.
ALTER TABLE grants
    ADD COLUMN voided_at timestamptz,
    ADD COLUMN settled_at timestamptz,
    ADD COLUMN settled_amount numeric(28, 9),
    ADD CONSTRAINT grant_gives_back_no_more_than_it_has CHECK (settled_amount >= 0 AND settled_amount <= amount);
CREATE INDEX grants_to_end ON grants (id) WHERE voided_at IS NOT NULL AND settled_at IS NULL;

-- Cuts that are wanted: from an instant on, at a place of the outbox after this one.
CREATE TABLE due_cuts (
    partition smallint NOT NULL,
    tenant text NOT NULL,
    grant_id uuid NOT NULL,
    is_end boolean NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (tenant, grant_id, is_end)
);
CREATE INDEX due_cuts_of_partition ON due_cuts (partition, due_at);

-- Cuts that were made: what of the quota was consumed at their place.
CREATE TABLE cuts (
    tenant text NOT NULL,
    grant_id uuid NOT NULL,
    is_end boolean NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    consumed numeric(28, 9) NOT NULL CONSTRAINT cut_consumption_is_bounded CHECK (abs(consumed) < 1e18),
    is_settled boolean NOT NULL,
    PRIMARY KEY (tenant, grant_id, is_end)
);
CREATE INDEX cuts_of_quota ON cuts (tenant, meter, period_start);
CREATE INDEX cuts_to_settle ON cuts (tenant, grant_id) WHERE is_end AND NOT is_settled;

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT, DELETE ON due_cuts TO %I', role);
        EXECUTE format('GRANT SELECT, INSERT ON cuts TO %I', role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT INSERT, UPDATE ON due_cuts TO tollgate_service;
        GRANT UPDATE ON cuts TO tollgate_service;
    END IF;
END
$$;
