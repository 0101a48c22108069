-- What a month comes to is read before anything is locked that other months need: detaching is a step of its own, the
-- last one.
DROP FUNCTION detach_entries_month(date, bigint);

-- Notes what a month's entries of class `usage` come to. For the owner of the tables only.
CREATE FUNCTION sum_up_month(month date, opening bigint) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    name text := 'entries_' || to_char(month, 'YYYY_MM');
    from_at timestamptz := month::timestamp AT TIME ZONE 'UTC';
    to_at timestamptz := (month + interval '1 month')::timestamp AT TIME ZONE 'UTC';
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
END
$$;
REVOKE EXECUTE ON FUNCTION sum_up_month(date, bigint) FROM PUBLIC;

-- Detaches a month that is summed up, and makes it again with the entries that stay. Returns the name of the detached
-- table. For the owner of the tables only.
CREATE FUNCTION detach_summed_month(month date, opening bigint) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    name text := 'entries_' || to_char(month, 'YYYY_MM');
    detached text := name || '_detached_' || opening;
    columns text := 'tenant, operation_id, step, line, leg, meter, period_start, credit, debit, amount, class, excess, late, '
        'carried, degraded, corrected, happened_at, booked_at, operation, hour_at, subjects, chain, batch';
BEGIN
    EXECUTE format('ALTER TABLE entries DETACH PARTITION %I', name);
    EXECUTE format('ALTER TABLE %I RENAME TO %I', name, detached);
    EXECUTE format('CREATE OR REPLACE TRIGGER entries_are_never_edited BEFORE UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION refuse_change()', detached);
    PERFORM ensure_entries_month(month);
    EXECUTE format('INSERT INTO entries (%s) SELECT %s FROM %I WHERE class <> ''usage''', columns, columns, detached);
    RETURN detached;
END
$$;
REVOKE EXECUTE ON FUNCTION detach_summed_month(date, bigint) FROM PUBLIC;
