DROP VIEW balances_by_entries, usage_by_entries;
