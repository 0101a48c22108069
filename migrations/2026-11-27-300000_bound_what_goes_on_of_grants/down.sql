DO $$
BEGIN
    IF EXISTS (SELECT FROM grants WHERE (max_rollover IS NOT NULL OR min_rollover > 0) AND settled_at IS NULL) THEN
        RAISE EXCEPTION 'grants bound what goes on of them: the version before would not read that';
    END IF;
END
$$;
ALTER TABLE held_parts DROP COLUMN unused, DROP COLUMN min_rollover, DROP COLUMN max_rollover;
DROP VIEW rolling_grants;
DROP INDEX grants_that_roll_over;
ALTER TABLE grants DROP COLUMN min_rollover, DROP COLUMN max_rollover;
