-- Figures are updated again and again: an update that finds room on its page writes no index.
ALTER TABLE balances SET (fillfactor = 50);
ALTER TABLE usage_hourly SET (fillfactor = 50);
ALTER TABLE cursors SET (fillfactor = 20);
