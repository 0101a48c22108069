-- What comparing the gate with the books came to, one row a checkpoint; and what became of operations that came again.
CREATE TABLE reconciliations (
    tenant text NOT NULL,
    checkpoint_id uuid NOT NULL,
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    -- Gate time of the checkpoint.
    taken_at timestamptz NOT NULL,
    judged_at timestamptz NOT NULL DEFAULT now(),
    counters integer NOT NULL CONSTRAINT reconciliation_counters_are_not_negative CHECK (counters >= 0),
    differences jsonb NOT NULL DEFAULT '[]',
    quarantined bigint NOT NULL,
    gaps bigint NOT NULL,
    state text NOT NULL CONSTRAINT reconciliation_state_is_known CHECK (state IN ('clean', 'drift', 'repaired', 'refused')),
    detail text NOT NULL DEFAULT '',
    -- Until then one instance has the repair in hand.
    claimed_until timestamptz,
    PRIMARY KEY (tenant, checkpoint_id)
);
CREATE INDEX reconciliations_newest_first ON reconciliations (judged_at DESC, checkpoint_id DESC);
CREATE INDEX reconciliations_to_repair ON reconciliations (judged_at) WHERE state = 'drift';
CREATE INDEX reconciliations_settled ON reconciliations (judged_at) WHERE state IN ('repaired', 'refused');

-- What the writer asks of the policy when a counter differs: whether it has changed since the counter was named.
CREATE INDEX policy_history_by_policy_version ON policy_history (policy_version);

ALTER TABLE repeats
    ADD COLUMN tenant text,
    ADD COLUMN event bytea,
    ADD COLUMN undone_at timestamptz,
    -- How far the outbox had come when the gate gave the units back.
    ADD COLUMN undone_sequence bigint;
-- Of those from before, the event is not known: what they left at the gate, the next checkpoint finds.
UPDATE repeats SET undone_at = now(), undone_sequence = sequence;
CREATE INDEX repeats_to_undo ON repeats (partition, epoch, sequence) WHERE undone_at IS NULL;
CREATE INDEX repeats_of_tenant ON repeats (tenant, epoch, sequence);

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['tollgate_writer', 'tollgate_service'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON reconciliations TO %I', role);
            EXECUTE format('GRANT SELECT ON tenants, policy_history, quota_periods TO %I', role);
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT DELETE ON repeats TO tollgate_service;
    END IF;
END
$$;
