-- One row for every booked operation: the durable state machine that makes it happen once even after the gate forgot it.
CREATE TABLE reservations (
    partition smallint NOT NULL,
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL CONSTRAINT reservation_state_is_known CHECK (state IN ('reserved', 'consumed', 'released', 'expired')),
    step integer NOT NULL CONSTRAINT reservation_step_is_positive CHECK (step > 0),
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    uncharged bigint[],
    fingerprint bytea NOT NULL,
    keyed boolean NOT NULL,
    operation text NOT NULL,
    policy_version bigint NOT NULL,
    period_start timestamptz NOT NULL,
    meters text[] NOT NULL,
    subjects bigint[] NOT NULL CONSTRAINT reservation_names_at_most_four_subjects CHECK (cardinality(subjects) <= 4),
    born_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    resolved_at timestamptz,
    PRIMARY KEY (partition, id, tenant)
) PARTITION BY HASH (partition);

DO $$
BEGIN
    FOR remainder IN 0..7 LOOP
        EXECUTE format('CREATE TABLE reservations_%s PARTITION OF reservations FOR VALUES WITH (MODULUS 8, REMAINDER %s)', remainder, remainder);
    END LOOP;
END
$$;
CREATE INDEX reservations_open_by_tenant ON reservations (tenant, expires_at) WHERE state = 'reserved';
CREATE INDEX reservations_newest_first ON reservations (tenant, born_at DESC, id DESC);
