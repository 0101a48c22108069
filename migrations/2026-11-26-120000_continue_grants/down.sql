DO $$
BEGIN
    IF EXISTS (SELECT FROM grants WHERE goes_on AND settled_at IS NULL) THEN
        RAISE EXCEPTION 'grants go on over the end of a period: the version before would settle them in a closed one';
    END IF;
END
$$;
DROP INDEX due_cuts_by_time;
DROP VIEW standing_grants;
DROP TABLE rolled_returns;
DROP TABLE continued_returns;
DROP TABLE continued_grants;
ALTER TABLE grants DROP COLUMN goes_on;
