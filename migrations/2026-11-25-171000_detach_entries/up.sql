-- Months of entries that have left the books, with what they came to: `tollgate verify` starts from these openings.
CREATE TABLE openings (
    number bigint PRIMARY KEY CONSTRAINT openings_are_numbered_from_1 CHECK (number > 0),
    -- The UTC month. Facts that come later may make its partition again, so that it leaves twice.
    month date NOT NULL,
    file text NOT NULL,
    file_sha256 text NOT NULL,
    entries bigint NOT NULL,
    -- How many of them stay: all but those of class `usage`.
    kept bigint NOT NULL,
    hash bytea NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT now()
);

-- What the entries that left come to. They are of class `usage`, which moves three accounts.
CREATE TABLE opening_balances (
    opening bigint NOT NULL,
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    available numeric(28, 9) NOT NULL,
    reserved numeric(28, 9) NOT NULL,
    consumed numeric(28, 9) NOT NULL,
    reserved_beside_gate numeric(28, 9) NOT NULL,
    consumed_beside_gate numeric(28, 9) NOT NULL,
    consumed_of_carried numeric(28, 9) NOT NULL,
    PRIMARY KEY (tenant, meter, period_start, opening)
);
CREATE TABLE opening_usage (
    opening bigint NOT NULL,
    tenant text NOT NULL,
    meter text NOT NULL,
    hour_at timestamptz NOT NULL,
    operation text NOT NULL,
    subject bigint NOT NULL,
    consumed numeric(28, 9) NOT NULL,
    count bigint NOT NULL,
    excess numeric(28, 9) NOT NULL,
    late numeric(28, 9) NOT NULL,
    PRIMARY KEY (tenant, meter, hour_at, operation, subject, opening)
);

-- Of operations that have entries in the books as well: what left of each line.
CREATE TABLE opening_operations (
    opening bigint NOT NULL,
    tenant text NOT NULL,
    operation_id uuid NOT NULL,
    line smallint NOT NULL,
    reserved numeric(28, 9) NOT NULL,
    consumed numeric(28, 9) NOT NULL,
    PRIMARY KEY (tenant, operation_id, line, opening)
);

-- From which batch on a chain is proven, the hash of that batch, and the entries up to it that stay.
CREATE TABLE opening_chains (
    opening bigint NOT NULL,
    chain smallint NOT NULL,
    number bigint NOT NULL,
    hash bytea NOT NULL,
    kept_rows bigint NOT NULL,
    kept_hash bytea NOT NULL,
    PRIMARY KEY (chain, opening)
);

DO $$
DECLARE
    made text;
    role text;
BEGIN
    FOREACH made IN ARRAY ARRAY['openings', 'opening_balances', 'opening_usage', 'opening_operations', 'opening_chains'] LOOP
        EXECUTE format('CREATE TRIGGER openings_are_never_edited BEFORE UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION refuse_change()', made);
        EXECUTE format('CREATE TRIGGER openings_are_never_truncated BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', made);
        FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
            EXECUTE format('GRANT SELECT ON %I TO %I', made, role);
        END LOOP;
    END LOOP;
END
$$;

ALTER VIEW balances_by_entries RENAME TO balances_by_attached_entries;
CREATE VIEW balances_by_entries AS
SELECT tenant, meter, period_start,
    sum(granted) AS granted, sum(rolled_in) AS rolled_in, sum(carried_in) AS carried_in, sum(overage) AS overage,
    sum(adjusted) AS adjusted, sum(available) AS available, sum(reserved) AS reserved, sum(consumed) AS consumed,
    sum(lapsed) AS lapsed, sum(voided) AS voided, sum(rolled_out) AS rolled_out, sum(carried_out) AS carried_out,
    sum(repaid) AS repaid, sum(reserved_beside_gate) AS reserved_beside_gate,
    sum(consumed_beside_gate) AS consumed_beside_gate, sum(consumed_of_carried) AS consumed_of_carried
FROM (
    SELECT tenant, meter, period_start, granted, rolled_in, carried_in, overage, adjusted, available, reserved,
        consumed, lapsed, voided, rolled_out, carried_out, repaid, reserved_beside_gate, consumed_beside_gate,
        consumed_of_carried
    FROM balances_by_attached_entries
    UNION ALL
    SELECT tenant, meter, period_start, 0, 0, 0, 0, 0, available, reserved, consumed, 0, 0, 0, 0, 0,
        reserved_beside_gate, consumed_beside_gate, consumed_of_carried
    FROM opening_balances
) e
GROUP BY tenant, meter, period_start;

ALTER VIEW usage_by_entries RENAME TO usage_by_attached_entries;
CREATE VIEW usage_by_entries AS
SELECT tenant, meter, hour_at, operation, subject, sum(consumed) AS consumed, sum(count)::bigint AS count,
    sum(excess) AS excess, sum(late) AS late, sum(corrections) AS corrections
FROM (
    SELECT tenant, meter, hour_at, operation, subject, consumed, count, excess, late, corrections
    FROM usage_by_attached_entries
    UNION ALL
    SELECT tenant, meter, hour_at, operation, subject, consumed, count, excess, late, 0 FROM opening_usage
) e
GROUP BY tenant, meter, hour_at, operation, subject;

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT ON balances_by_entries, usage_by_entries TO %I', role);
    END LOOP;
END
$$;

-- Detaches a month: notes what its entries of class `usage` come to, and makes the month again with all others. Returns
-- the name of the detached table. For the owner of the tables only.
CREATE FUNCTION detach_entries_month(month date, opening bigint) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    name text := 'entries_' || to_char(month, 'YYYY_MM');
    detached text := name || '_detached_' || opening;
    from_at timestamptz := month::timestamp AT TIME ZONE 'UTC';
    to_at timestamptz := (month + interval '1 month')::timestamp AT TIME ZONE 'UTC';
    columns text := 'tenant, operation_id, step, line, leg, meter, period_start, credit, debit, amount, class, excess, late, '
        'carried, degraded, happened_at, booked_at, operation, hour_at, subjects, chain, batch';
BEGIN
    EXECUTE format('CREATE TEMPORARY VIEW leaving AS SELECT * FROM %I', name);
    INSERT INTO opening_balances
    SELECT opening, tenant, e.meter, period_start,
        sum(CASE 'available' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END),
        sum(CASE 'reserved' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END),
        sum(CASE 'consumed' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END),
        coalesce(sum(CASE 'reserved' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END) FILTER (WHERE carried), 0),
        coalesce(sum(CASE 'consumed' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END) FILTER (WHERE carried), 0),
        coalesce(sum(amount) FILTER (WHERE credit = 'reserved' AND debit = 'consumed' AND carried), 0)
    FROM leaving e WHERE class = 'usage'
    GROUP BY 2, 3, 4;

    -- What stays of the operations of this month.
    CREATE TEMPORARY TABLE staying ON COMMIT DROP AS
    SELECT tenant, operation_id, line, hour_at, debit = 'consumed' AND credit <> 'adjusted' AS uses
    FROM leaving WHERE class <> 'usage'
    UNION ALL
    SELECT tenant, operation_id, e.line, e.hour_at, e.debit = 'consumed' AND e.credit <> 'adjusted'
    FROM entries e
    JOIN (SELECT DISTINCT tenant, operation_id FROM leaving) l USING (tenant, operation_id)
    WHERE e.happened_at < from_at OR e.happened_at >= to_at;
    ANALYZE staying;
    INSERT INTO opening_operations
    SELECT opening, tenant, operation_id, e.line,
        coalesce(sum(CASE 'reserved' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END) FILTER (WHERE class = 'usage'), 0),
        coalesce(sum(CASE 'consumed' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END) FILTER (WHERE class = 'usage'), 0)
    FROM leaving e
    JOIN (
        SELECT tenant, operation_id FROM staying UNION SELECT tenant, operation_id FROM opening_operations
    ) s USING (tenant, operation_id)
    WHERE class = 'usage' OR (class = 'correction' AND credit = 'available') OR (class = 'period' AND carried)
    GROUP BY 2, 3, 4;

    -- A use counts once: with what stays of it, where something does.
    INSERT INTO opening_usage
    SELECT opening, e.tenant, e.meter, e.hour_at, e.operation, named.subject,
        sum(CASE WHEN debit = 'consumed' THEN amount ELSE -amount END),
        count(DISTINCT (e.operation_id, e.line)) FILTER (WHERE debit = 'consumed' AND s.tenant IS NULL),
        coalesce(sum(amount) FILTER (WHERE excess), 0), coalesce(sum(amount) FILTER (WHERE late), 0)
    FROM leaving e
    LEFT JOIN (SELECT DISTINCT tenant, operation_id, line, hour_at FROM staying WHERE uses) s USING (tenant, operation_id, line, hour_at)
    CROSS JOIN LATERAL unnest(0::bigint || e.subjects) AS named(subject)
    WHERE class = 'usage' AND (debit = 'consumed' OR credit = 'consumed')
    GROUP BY 2, 3, 4, 5, 6;

    DROP VIEW leaving;
    EXECUTE format('ALTER TABLE entries DETACH PARTITION %I', name);
    EXECUTE format('ALTER TABLE %I RENAME TO %I', name, detached);
    EXECUTE format('CREATE OR REPLACE TRIGGER entries_are_never_edited BEFORE UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION refuse_change()', detached);
    PERFORM ensure_entries_month(month);
    EXECUTE format('INSERT INTO entries (%s) SELECT %s FROM %I WHERE class <> ''usage''', columns, columns, detached);
    RETURN detached;
END
$$;
REVOKE EXECUTE ON FUNCTION detach_entries_month(date, bigint) FROM PUBLIC;
