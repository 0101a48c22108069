DROP INDEX quota_periods_with_notices;
ALTER TABLE quota_periods DROP COLUMN notices_ended;
