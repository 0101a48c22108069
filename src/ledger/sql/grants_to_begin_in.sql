SELECT g.tenant, g.meter, w.period_start, g.effective_at, g.amount
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
JOIN grants g ON g.tenant = w.tenant AND g.meter = w.meter
    AND g.effective_at >= w.period_start AND g.effective_at < w.period_end
WHERE g.period_start IS NULL
