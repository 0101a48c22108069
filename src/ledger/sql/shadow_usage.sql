-- A table in the place of the view, for the rest of the transaction.
CREATE TEMPORARY TABLE usage_by_entries ON COMMIT DROP AS SELECT * FROM usage_by_entries WHERE tenant = ANY($1)
