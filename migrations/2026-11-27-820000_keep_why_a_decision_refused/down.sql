ALTER TABLE decisions DROP COLUMN code;
