DROP TABLE quota_notices;
ALTER TABLE quota_periods DROP COLUMN notices_percent;
