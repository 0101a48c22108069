-- Calls taken while the gate was away, kept until the gate has them: in the order of their numbers, reservation by reservation.
CREATE TABLE parked (
    tenant text NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    partition smallint NOT NULL,
    reservation_id uuid NOT NULL,
    call text NOT NULL CONSTRAINT parked_call_is_known CHECK (call IN ('reserve', 'usage', 'consume', 'release')),
    taken_at timestamptz NOT NULL,
    payload bytea NOT NULL,
    fingerprint bytea,
    state text NOT NULL DEFAULT 'waiting' CONSTRAINT parked_state_is_known CHECK (state IN ('waiting', 'done', 'conflict')),
    reason text,
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at timestamptz,
    PRIMARY KEY (tenant, number),
    CONSTRAINT parked_admission_has_a_fingerprint CHECK ((call IN ('reserve', 'usage')) = (fingerprint IS NOT NULL)),
    CONSTRAINT parked_conflict_has_a_reason CHECK ((state = 'conflict') = (reason IS NOT NULL))
);
CREATE INDEX parked_waiting_in_order ON parked (tenant, number) WHERE state = 'waiting';
CREATE INDEX parked_in_conflict ON parked (number) WHERE state = 'conflict';
CREATE INDEX parked_by_reservation ON parked (reservation_id, number);
CREATE INDEX parked_done_by_age ON parked (settled_at) WHERE state = 'done';
-- An admission happens once, however often it is repeated.
CREATE UNIQUE INDEX parked_admission_is_unique ON parked (tenant, reservation_id)
    WHERE call IN ('reserve', 'usage') AND state <> 'conflict';

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON parked TO tollgate_service;
    END IF;
END
$$;
