-- On which terms what is unused of a quota goes on to the next period: fixed when a period opens.
ALTER TABLE quota_periods
    ADD COLUMN min_rollover numeric(28, 9) NOT NULL DEFAULT 0,
    ADD COLUMN rollover_periods smallint NOT NULL DEFAULT 1,
    ADD COLUMN reroll boolean NOT NULL DEFAULT false;
ALTER TABLE quota_periods
    ADD CONSTRAINT least_rollover_is_within_the_most CHECK (min_rollover >= 0 AND min_rollover <= max_rollover) NOT VALID,
    ADD CONSTRAINT rollover_has_a_period CHECK (rollover_periods > 0) NOT VALID;

-- What a close granted to the next period beside what was unused.
ALTER TABLE period_closures ADD COLUMN added numeric(28, 9) NOT NULL DEFAULT 0;
ALTER TABLE period_closures ADD CONSTRAINT closure_adds_a_bounded_amount CHECK (added >= 0 AND added < 1e18) NOT VALID;

-- Amounts that came over from earlier periods, as they stand in each period.
CREATE TABLE rolled_amounts (
    tenant text NOT NULL,
    meter text NOT NULL,
    -- The period in which it stands.
    period_start timestamptz NOT NULL,
    -- When the last period ends in which it counts, and in how many after this one it does.
    ends_at timestamptz NOT NULL,
    periods_left smallint NOT NULL CONSTRAINT rolled_amount_has_periods_left CHECK (periods_left >= 0),
    amount numeric(28, 9) NOT NULL,
    -- What of it was unused in the period before: the rest was granted, or returned of carried holds.
    rolled numeric(28, 9) NOT NULL,
    PRIMARY KEY (tenant, meter, period_start, ends_at),
    CONSTRAINT rolled_amount_is_bounded CHECK (rolled >= 0 AND rolled <= amount AND amount < 1e18)
);

-- What carried holds are set against, amount by amount.
ALTER TABLE carried_holds
    ADD COLUMN min_rollover numeric(28, 9) NOT NULL DEFAULT 0,
    ADD COLUMN has_parts boolean NOT NULL DEFAULT false,
    -- What rolled over with the close, as it stands in the next period.
    ADD COLUMN rolls_until timestamptz,
    ADD COLUMN rolls_periods_left smallint;
CREATE TABLE held_parts (
    tenant text NOT NULL,
    meter text NOT NULL,
    -- The closed period.
    period_start timestamptz NOT NULL,
    -- In burn order.
    place integer NOT NULL,
    held numeric(28, 9) NOT NULL CONSTRAINT held_part_is_positive_and_bounded CHECK (held > 0 AND held < 1e18),
    -- Whether what returns of it lapses, rolls over with the quota, or goes on with an amount that came over before.
    fate text NOT NULL CONSTRAINT held_part_has_a_known_fate CHECK (fate IN ('lapses', 'rolls', 'goes_on', 'grant')),
    ends_at timestamptz,
    periods_left smallint,
    grant_id uuid,
    PRIMARY KEY (tenant, meter, period_start, place),
    CONSTRAINT held_part_says_where_it_goes CHECK (
        (fate = 'goes_on') = (ends_at IS NOT NULL) AND (fate = 'goes_on') = (periods_left IS NOT NULL)
        AND (fate = 'grant') = (grant_id IS NOT NULL)
    )
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE ON rolled_amounts TO tollgate_service;
        GRANT SELECT, INSERT ON held_parts TO tollgate_service;
    END IF;
END
$$;
