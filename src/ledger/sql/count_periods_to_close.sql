SELECT count(*) AS periods
FROM balances
WHERE NOT is_closed AND period_end <= $1
