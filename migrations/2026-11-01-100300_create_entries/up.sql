-- The books: entries that are never edited, the hash chain over them, and the one place with subjects' names.
CREATE TYPE account AS ENUM (
    'granted', 'rolled_in', 'carried_in', 'overage', 'adjusted',
    'available', 'reserved', 'consumed', 'lapsed', 'voided', 'rolled_out', 'carried_out', 'repaid'
);
CREATE TYPE entry_class AS ENUM ('usage', 'grant', 'period', 'correction');

CREATE TABLE entries (
    tenant text NOT NULL,
    operation_id uuid NOT NULL,
    step integer NOT NULL,
    line smallint NOT NULL,
    leg smallint NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    credit account NOT NULL,
    debit account NOT NULL,
    amount numeric(28, 9) NOT NULL,
    class entry_class NOT NULL,
    excess boolean NOT NULL DEFAULT false,
    late boolean NOT NULL DEFAULT false,
    carried boolean NOT NULL DEFAULT false,
    degraded boolean NOT NULL DEFAULT false,
    happened_at timestamptz NOT NULL,
    booked_at timestamptz NOT NULL,
    operation text NOT NULL,
    hour_at timestamptz NOT NULL,
    subjects bigint[] NOT NULL CONSTRAINT entry_names_at_most_four_subjects CHECK (cardinality(subjects) <= 4),
    chain smallint NOT NULL,
    batch bigint NOT NULL,
    -- The upper bound also refuses NaN, which sorts above every number.
    CONSTRAINT entry_amount_is_positive_and_bounded CHECK (amount > 0 AND amount < 1e18),
    CONSTRAINT entry_moves_between_two_accounts CHECK (credit <> debit),
    PRIMARY KEY (tenant, operation_id, step, line, leg, happened_at)
) PARTITION BY RANGE (happened_at);
-- Entries of one instant are sorted as they are read: a wider index would cost every insert.
CREATE INDEX entries_newest_first ON entries (tenant, happened_at DESC);

CREATE TABLE batches (
    chain smallint NOT NULL,
    number bigint NOT NULL,
    rows integer NOT NULL CONSTRAINT batch_has_rows CHECK (rows > 0),
    hash bytea NOT NULL,
    previous bytea NOT NULL,
    booked_at timestamptz NOT NULL,
    PRIMARY KEY (chain, number)
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: the books are never edited', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
-- Row triggers of a partitioned table are copied to every partition; those on TRUNCATE are not, so each month gets its own.
CREATE TRIGGER entries_are_never_edited BEFORE UPDATE OR DELETE ON entries FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER entries_are_never_truncated BEFORE TRUNCATE ON entries FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER batches_are_never_edited BEFORE UPDATE OR DELETE ON batches FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER batches_are_never_truncated BEFORE TRUNCATE ON batches FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Makes the entries' partition of one UTC month, unless it exists. Runs as its owner: the service may not create tables.
CREATE FUNCTION ensure_entries_month(month date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    first date := date_trunc('month', month)::date;
    name text := 'entries_' || to_char(first, 'YYYY_MM');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('ensure_entries_month'));
    -- Asked of the catalogue's rows: waiting for the lock does not refresh what to_regclass remembers.
    IF EXISTS (SELECT FROM pg_class WHERE relname = name AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'entries'::regclass)) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE entries INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    EXECUTE format('CREATE TRIGGER entries_are_never_truncated BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', name);
    -- Attaching, unlike creating in place, does not stop those who read and write other months.
    EXECUTE format('ALTER TABLE entries ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name,
        first::timestamp AT TIME ZONE 'UTC', (first + interval '1 month')::timestamp AT TIME ZONE 'UTC');
    RETURN true;
END
$$;

CREATE TABLE subjects (
    tenant text NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    kind text NOT NULL,
    id text NOT NULL,
    PRIMARY KEY (tenant, number),
    CONSTRAINT subject_is_named_once UNIQUE (tenant, kind, id)
);
