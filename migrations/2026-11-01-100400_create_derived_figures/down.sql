DROP TABLE quota_periods, usage_hourly, balances;
