-- What the gate decided about the tenants that are sampled, by UTC day, so that a week can go by dropping days.
CREATE TABLE decisions (
    tenant text NOT NULL,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    call text NOT NULL,
    operation text,
    outcome text NOT NULL,
    dry_run boolean NOT NULL,
    degraded boolean NOT NULL,
    policy_version bigint NOT NULL,
    -- Each subject's kind and keyed hash.
    subjects jsonb NOT NULL,
    lines jsonb NOT NULL,
    -- For each limit that was consulted: id, level, capacity, consumed, reserved, need, wait.
    limits jsonb NOT NULL,
    -- The id leads: a decision is looked up by it alone.
    PRIMARY KEY (id, tenant, at),
    CONSTRAINT decision_call_is_known CHECK (call IN ('reserve', 'usage', 'check')),
    CONSTRAINT decision_outcome_is_known CHECK (outcome IN ('admitted', 'refused'))
) PARTITION BY RANGE (at);

-- Makes the decisions' partition of one UTC day, unless it exists. Runs as its owner: the service may not create tables.
CREATE FUNCTION ensure_decisions_day(day date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    name text := 'decisions_' || to_char(day, 'YYYY_MM_DD');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('decisions_days'));
    -- Asked of the catalogue's rows: waiting for the lock does not refresh what to_regclass remembers.
    IF EXISTS (SELECT FROM pg_class WHERE relname = name AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'decisions'::regclass)) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE decisions INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    -- Attaching, unlike creating in place, does not stop those who read and write other days.
    EXECUTE format('ALTER TABLE decisions ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name,
        day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
    RETURN true;
END
$$;

-- Drops the decisions of all UTC days before this one. Returns how many days.
CREATE FUNCTION drop_decisions_before(day date) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    name text;
    dropped integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('decisions_days'));
    FOR name IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'decisions'::regclass AND c.relname < 'decisions_' || to_char(day, 'YYYY_MM_DD')
        ORDER BY c.relname
    LOOP
        EXECUTE format('DROP TABLE %I', name);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;

REVOKE EXECUTE ON FUNCTION ensure_decisions_day(date), drop_decisions_before(date) FROM PUBLIC;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT ON decisions TO tollgate_service;
        GRANT EXECUTE ON FUNCTION ensure_decisions_day(date), drop_decisions_before(date) TO tollgate_service;
    END IF;
END
$$;
