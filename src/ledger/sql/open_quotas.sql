SELECT q.meter, q.period_start, q.period_end, q.decimals, q.capacity, q.version
FROM quota_capacities q
JOIN unnest($2::text[], $3::timestamptz[]) AS w(meter, period_start) USING (meter, period_start)
WHERE q.tenant = $1
