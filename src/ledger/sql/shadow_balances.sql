-- A table that hides the view of the same name until the transaction ends.
CREATE TEMPORARY TABLE balances_by_entries ON COMMIT DROP AS SELECT * FROM balances_by_entries WHERE tenant = ANY($1)
