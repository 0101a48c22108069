-- The closed periods of these meters that begin at these instants or later.
SELECT DISTINCT c.tenant, c.meter, c.period_start
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, from_at)
JOIN period_closures c ON c.tenant = w.tenant AND c.meter = w.meter AND c.period_start >= w.from_at
