-- Nothing: 211000 gives open reservations a table and indexes of their own. To build this index again here would keep
-- readers from the old table for as long as it takes to scan it.
SELECT 1;
