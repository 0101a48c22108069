SELECT q.tenant, q.meter, q.period_start, q.period_end, q.decimals, q.capacity, q.version,
    n.period_end AS next_end, n.capacity AS next_capacity, n.version AS next_version
FROM quota_capacities q
JOIN unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start) USING (tenant, meter, period_start)
LEFT JOIN quota_capacities n ON n.tenant = q.tenant AND n.meter = q.meter AND n.period_start = q.period_end
