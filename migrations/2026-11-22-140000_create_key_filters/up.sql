-- Keys that were used longer ago than the gate remembers them, in filters that every instance holds: without them it would have to ask the ledger for every new key.
CREATE TABLE booked_keys (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The ids of keyed reservations, sixteen bytes each, in the transaction that made them known.
    ids bytea NOT NULL CONSTRAINT booked_keys_are_whole CHECK (length(ids) > 0 AND length(ids) % 16 = 0)
);

-- What was booked between two seals, by partition. A filter is there until it is merged.
CREATE TABLE key_stretches (
    partition smallint NOT NULL,
    number bigint NOT NULL,
    sealed_at timestamptz NOT NULL,
    keys bytea NOT NULL CONSTRAINT stretch_keys_are_whole CHECK (length(keys) > 0 AND length(keys) % 8 = 0),
    filter bytea,
    PRIMARY KEY (partition, number)
);

-- Of each partition the merged filter of all stretches up to a number.
CREATE TABLE key_filters (
    partition smallint PRIMARY KEY,
    up_to bigint NOT NULL,
    keys bigint NOT NULL,
    merged_at timestamptz NOT NULL,
    filter bytea NOT NULL
);

-- Up to when everything that the gate had admitted is booked and sealed; by the gate's time.
CREATE TABLE key_seal (
    is_the_one boolean PRIMARY KEY DEFAULT true CONSTRAINT there_is_one_seal CHECK (is_the_one),
    sealed_at timestamptz
);
INSERT INTO key_seal (sealed_at) VALUES (NULL);

-- What was booked, parked or put into quarantine before there were filters.
INSERT INTO booked_keys (ids)
SELECT string_agg(uuid_send(id), '') FROM (
    SELECT id, row_number() OVER () / 50000 AS chunk FROM (
        SELECT id FROM reservations WHERE keyed
        UNION SELECT reservation_id FROM parked WHERE call IN ('reserve', 'usage')
        UNION SELECT reservation_id FROM quarantine WHERE status = 'open' AND reservation_id IS NOT NULL) known) chunks
GROUP BY chunk;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_writer') THEN
        GRANT SELECT, INSERT ON booked_keys, reservations_archive TO tollgate_writer;
        GRANT DELETE ON reservations TO tollgate_writer;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, DELETE ON booked_keys TO tollgate_service;
        GRANT SELECT, INSERT, UPDATE, DELETE ON key_stretches, key_filters TO tollgate_service;
        GRANT SELECT, UPDATE ON key_seal TO tollgate_service;
    END IF;
END
$$;
