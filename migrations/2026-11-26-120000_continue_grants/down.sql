DROP VIEW standing_grants;
DROP TABLE continued_grants;
ALTER TABLE grants DROP COLUMN goes_on;
