-- How far each partition's outbox is booked, under which epoch, and what could not be booked.
CREATE TABLE epochs (
    partition smallint NOT NULL,
    epoch bigint NOT NULL CONSTRAINT epoch_is_not_negative CHECK (epoch >= 0),
    run_id text NOT NULL,
    adopted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, epoch)
);

CREATE TABLE cursors (
    partition smallint PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    sequence bigint NOT NULL DEFAULT 0,
    -- Hash of the entry booked last: the entry at the cursor must be this one.
    event_hash bytea,
    booked_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE leases (
    name text PRIMARY KEY,
    owner text NOT NULL,
    fence bigint NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE TABLE gaps (
    partition smallint NOT NULL,
    after_epoch bigint NOT NULL,
    after_sequence bigint NOT NULL,
    found_epoch bigint NOT NULL,
    found_sequence bigint NOT NULL,
    noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, found_epoch, found_sequence)
);

CREATE TABLE quarantine (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    reservation_id uuid,
    tenant text,
    event bytea NOT NULL,
    reason text NOT NULL,
    status text NOT NULL DEFAULT 'open' CONSTRAINT quarantine_status_is_known CHECK (status IN ('open', 'resolved', 'discarded')),
    tries integer NOT NULL DEFAULT 1,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, epoch, sequence)
);
CREATE INDEX quarantine_open_by_reservation ON quarantine (reservation_id) WHERE status = 'open';

-- Operations that arrived again as new events after the gate had forgotten them: nothing was booked for these.
CREATE TABLE repeats (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    reservation_id uuid NOT NULL,
    noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, epoch, sequence)
);
