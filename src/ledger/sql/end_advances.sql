DELETE FROM grant_advances v
USING unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_end)
WHERE v.tenant = w.tenant AND v.meter = w.meter AND v.period_start = w.period_end
RETURNING v.tenant, v.meter
