ALTER TABLE quota_periods RESET (fillfactor);
