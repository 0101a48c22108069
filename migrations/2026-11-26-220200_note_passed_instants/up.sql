-- As of when something of the partition was closed last: no call is parked as one that was taken before that.
ALTER TABLE cursors ADD COLUMN passed_at timestamptz;
