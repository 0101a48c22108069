-- How much of what is unused of a quota goes on to the next period: fixed when the period opens, as the included amount.
ALTER TABLE quota_periods ADD COLUMN max_rollover numeric(28, 9) NOT NULL DEFAULT 0;
ALTER TABLE quota_periods
    ADD CONSTRAINT rollover_is_bounded CHECK (max_rollover >= 0 AND max_rollover < 1e18) NOT VALID;

-- What of a closed period went on to the next one.
ALTER TABLE period_closures ADD COLUMN rolled numeric(28, 9) NOT NULL DEFAULT 0;
ALTER TABLE period_closures
    ADD CONSTRAINT closure_rolls_what_is_unused CHECK (rolled >= 0 AND rolled < 1e18 AND (rolled = 0 OR overage = 0)) NOT VALID;
