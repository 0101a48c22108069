SELECT b.tenant, b.meter, b.period_start, b.period_end, coalesce(q.max_rollover > 0 OR q.preserve_overage, false) AS may_go_on
FROM balances b
LEFT JOIN period_closures c USING (tenant, meter, period_start)
LEFT JOIN quota_periods q USING (tenant, meter, period_start)
WHERE c.tenant IS NULL AND b.period_end <= $1
    AND ($2::timestamptz IS NULL OR (b.period_end, b.tenant, b.meter) > ($2, $3, $4))
ORDER BY b.period_end, b.tenant, b.meter
LIMIT $5
