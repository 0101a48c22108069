ALTER TABLE cuts DROP COLUMN is_at_instant;
