ALTER TABLE period_closures DROP COLUMN rolled;
ALTER TABLE quota_periods DROP COLUMN max_rollover;
