UPDATE quota_periods q SET delivered_at = now()
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_start = w.period_start AND q.delivered_at IS NULL
