-- A period is opened and told to the gate a day before it begins: which ones the gate has still to be told.
ALTER TABLE quota_periods ADD COLUMN delivered_at timestamptz;
CREATE INDEX quota_periods_by_end ON quota_periods (period_end);
