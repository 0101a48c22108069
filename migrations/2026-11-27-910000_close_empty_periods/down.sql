-- The balances stay: the version before closes their periods too.
SELECT 1;
