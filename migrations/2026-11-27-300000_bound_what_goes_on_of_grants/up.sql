-- How much of what is unused of a grant goes on when a period is closed: at most (null: all of one that is given once,
-- nothing of one that recurs), and at least.
ALTER TABLE grants
    ADD COLUMN max_rollover numeric(28, 9),
    ADD COLUMN min_rollover numeric(28, 9) NOT NULL DEFAULT 0;
ALTER TABLE grants
    ADD CONSTRAINT grant_rollover_is_bounded CHECK (
        min_rollover >= 0 AND min_rollover <= coalesce(max_rollover, amount) AND min_rollover <= amount
        AND (max_rollover IS NULL OR max_rollover >= 0 AND max_rollover < 1e18)
    ) NOT VALID;

-- What periods got of recurring grants that roll over by themselves.
CREATE INDEX grants_that_roll_over ON grants (tenant, meter, period_start) WHERE max_rollover > 0 AND NOT goes_on;
CREATE VIEW rolling_grants AS
SELECT tenant, meter, period_start, id AS grant_id
FROM grants
WHERE max_rollover > 0 AND NOT goes_on AND (recurrence = 'period' OR repeats IS NOT NULL) AND settled_at IS NULL;

-- The same for what holds are set against that go over, and what else of it was unused.
ALTER TABLE held_parts
    ADD COLUMN max_rollover numeric(28, 9),
    ADD COLUMN min_rollover numeric(28, 9) NOT NULL DEFAULT 0,
    ADD COLUMN unused numeric(28, 9) NOT NULL DEFAULT 0;
ALTER TABLE held_parts
    ADD CONSTRAINT held_rollover_is_bounded CHECK (
        min_rollover >= 0 AND min_rollover < 1e18 AND (max_rollover IS NULL OR max_rollover >= 0 AND max_rollover < 1e18)
    ) NOT VALID,
    ADD CONSTRAINT held_beside_what_was_unused CHECK (unused >= 0 AND unused < 1e18) NOT VALID;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT ON rolling_grants TO tollgate_service;
    END IF;
END
$$;
