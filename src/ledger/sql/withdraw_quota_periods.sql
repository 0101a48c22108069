-- Their quotas were gone before they began: they are not open any more.
DELETE FROM quota_periods q
USING unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_start = w.period_start
