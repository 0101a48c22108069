-- A table in the place of the view, for the rest of the transaction.
CREATE TEMPORARY TABLE balances_by_entries ON COMMIT DROP AS SELECT * FROM balances_by_entries WHERE tenant = ANY($1)
