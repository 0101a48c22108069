SELECT b.tenant, b.meter, b.period_start, b.available, b.reserved, b.consumed - b.adjusted AS consumed,
    b.overage - coalesce(c.paid_by_next, 0) AS overage, c.tenant IS NOT NULL AS is_closed
FROM unnest($1::text[], $2::timestamptz[]) AS w(tenant, period_start)
JOIN balances b USING (tenant, period_start)
LEFT JOIN period_closures c USING (tenant, meter, period_start)
