ALTER TABLE statements DROP COLUMN billed_in;
