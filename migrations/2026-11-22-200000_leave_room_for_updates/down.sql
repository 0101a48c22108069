ALTER TABLE cursors RESET (fillfactor);
ALTER TABLE usage_hourly RESET (fillfactor);
ALTER TABLE balances RESET (fillfactor);
