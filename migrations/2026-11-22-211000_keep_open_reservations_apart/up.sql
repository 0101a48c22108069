-- Open reservations stand apart from resolved ones: a small table in which nothing old is searched, and one to which rows are only
-- added. `reservations` reads both, as before. Booking and look-ups wait while rows are copied; the gate goes on.
ALTER TABLE reservations RENAME TO reservations_before;
ALTER TABLE reservations_before RENAME CONSTRAINT reservations_pkey TO reservations_before_pkey;
DROP INDEX reservations_open_by_tenant, reservations_open_by_subject, reservations_newest_first;

CREATE TABLE reservations (LIKE reservations_before INCLUDING CONSTRAINTS, PRIMARY KEY (partition, id, tenant));
CREATE TABLE reservations_open (CONSTRAINT reservation_is_open CHECK (state = 'reserved')) INHERITS (reservations);
CREATE TABLE reservations_resolved (CONSTRAINT reservation_is_resolved CHECK (state <> 'reserved')) INHERITS (reservations);
INSERT INTO reservations_open SELECT * FROM reservations_before WHERE state = 'reserved';
INSERT INTO reservations_resolved SELECT * FROM reservations_before WHERE state <> 'reserved';
DROP TABLE reservations_before;

ALTER TABLE reservations_open ADD PRIMARY KEY (partition, id, tenant);
ALTER TABLE reservations_resolved ADD PRIMARY KEY (partition, id, tenant);
-- Without the id: a plan made while nothing is open would look ids up in it, and read all of it for each.
CREATE INDEX reservations_open_newest_first ON reservations_open (tenant, born_at DESC);
CREATE INDEX reservations_resolved_newest_first ON reservations_resolved (tenant, born_at DESC, id DESC);
CREATE INDEX reservations_open_by_tenant ON reservations_open (tenant, expires_at);
CREATE INDEX reservations_open_by_subject ON reservations_open USING gin (subjects) WITH (gin_pending_list_limit = 256)
    WHERE subjects <> '{}';
ANALYZE reservations_open, reservations_resolved;

-- An instance of the version before writes to `reservations` itself, new rows and changed ones alike.
CREATE FUNCTION place_reservation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM reservations WHERE partition = NEW.partition AND id = NEW.id AND tenant = NEW.tenant;
    IF NEW.state = 'reserved' THEN
        INSERT INTO reservations_open SELECT NEW.*;
    ELSE
        INSERT INTO reservations_resolved SELECT NEW.*;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER reservations_are_placed BEFORE INSERT ON reservations FOR EACH ROW EXECUTE FUNCTION place_reservation();

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON reservations, reservations_open, reservations_resolved TO %I', role);
    END LOOP;
END
$$;
