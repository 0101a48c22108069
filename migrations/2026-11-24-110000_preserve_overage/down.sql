ALTER TABLE period_closures DROP COLUMN paid_by_next;
ALTER TABLE quota_periods DROP COLUMN preserve_overage;
