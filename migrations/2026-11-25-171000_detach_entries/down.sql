DO $$
BEGIN
    IF EXISTS (SELECT FROM openings) THEN
        RAISE EXCEPTION 'months of entries have been detached: without their openings the books cannot be proven';
    END IF;
END
$$;
DROP FUNCTION detach_entries_month(date, bigint);
DROP VIEW balances_by_entries, usage_by_entries;
ALTER VIEW balances_by_attached_entries RENAME TO balances_by_entries;
ALTER VIEW usage_by_attached_entries RENAME TO usage_by_entries;
DROP TABLE openings, opening_balances, opening_usage, opening_operations, opening_chains;
