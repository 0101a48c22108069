SELECT q.tenant, q.meter, q.period_start, q.period_end, q.decimals, q.included, q.version,
    n.period_end AS next_end, n.included AS next_included, n.version AS next_version
FROM quota_periods q
JOIN unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start) USING (tenant, meter, period_start)
LEFT JOIN quota_periods n ON n.tenant = q.tenant AND n.meter = q.meter AND n.period_start = q.period_end
