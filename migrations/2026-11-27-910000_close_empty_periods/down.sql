-- The balances stay: the version before closes their periods too.
DROP VIEW quota_periods_without_balance;
