DROP TABLE held_parts;
ALTER TABLE carried_holds
    DROP COLUMN rolls_periods_left,
    DROP COLUMN rolls_until,
    DROP COLUMN has_parts,
    DROP COLUMN min_rollover;
DROP TABLE rolled_amounts;
ALTER TABLE period_closures DROP COLUMN added;
ALTER TABLE quota_periods
    DROP COLUMN reroll,
    DROP COLUMN rollover_periods,
    DROP COLUMN min_rollover;
