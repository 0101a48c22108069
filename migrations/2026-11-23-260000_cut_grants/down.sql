DROP TABLE cuts, due_cuts;
DROP INDEX grants_to_end;
ALTER TABLE grants DROP COLUMN voided_at, DROP COLUMN settled_at, DROP COLUMN settled_amount;
