-- What came over into these periods, the amount that ends first before the others.
SELECT r.tenant, r.meter, r.period_start, r.ends_at, r.periods_left, r.amount, r.rolled
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN rolled_amounts r USING (tenant, meter, period_start)
ORDER BY r.tenant, r.meter, r.period_start, r.ends_at
