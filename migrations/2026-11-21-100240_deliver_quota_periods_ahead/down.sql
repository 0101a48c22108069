DROP INDEX quota_periods_by_end;
ALTER TABLE quota_periods DROP COLUMN delivered_at;
