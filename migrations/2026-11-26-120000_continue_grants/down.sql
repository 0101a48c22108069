DROP VIEW standing_grants;
DROP TABLE rolled_returns;
DROP TABLE continued_returns;
DROP TABLE continued_grants;
ALTER TABLE grants DROP COLUMN goes_on;
