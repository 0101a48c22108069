-- A quota's period gets a version with each change of its capacity: with room on its page that touches no index. Pages
-- that are full already are left as they are.
ALTER TABLE quota_periods SET (fillfactor = 70);
