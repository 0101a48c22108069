SELECT count(*) AS periods
FROM balances b
LEFT JOIN period_closures c USING (tenant, meter, period_start)
WHERE c.tenant IS NULL AND b.period_end <= $1
