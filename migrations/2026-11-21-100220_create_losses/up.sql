-- Where an epoch ended in the books, so that what was acknowledged behind that place is known to be lost.
CREATE TABLE epoch_ends (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    last_sequence bigint NOT NULL,
    noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, epoch)
);

-- Events that were acknowledged and never reached the books, as far as an instance that acknowledged them lives to tell.
CREATE TABLE losses (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    tenant text NOT NULL,
    reservation_id uuid NOT NULL,
    kind text NOT NULL CONSTRAINT loss_kind_is_known CHECK (kind IN ('reserve', 'usage', 'consume', 'release', 'extend')),
    meters text[] NOT NULL,
    held numeric(28, 9)[] NOT NULL,
    consumed numeric(28, 9)[] NOT NULL,
    noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, partition, epoch, sequence),
    CONSTRAINT loss_names_units_per_meter CHECK (cardinality(meters) = cardinality(held) AND cardinality(meters) = cardinality(consumed))
);

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['tollgate_writer', 'tollgate_service'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('GRANT SELECT, INSERT ON epoch_ends TO %I', role);
            EXECUTE format('GRANT SELECT ON losses TO %I', role);
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT INSERT ON losses TO tollgate_service;
    END IF;
END
$$;
