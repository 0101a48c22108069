SELECT c.tenant, c.meter, c.period_start, c.booked_in, c.consumed, c.adjusted, c.paid_before, k.tenant IS NOT NULL AS is_closed,
    coalesce(k.lapsed + k.rolled, 0) + coalesce(greatest(h.returned - h.charged, 0), 0) AS unused
FROM unnest($1::text[], $2::timestamptz[]) AS w(tenant, period_start)
JOIN corrections c USING (tenant, period_start)
LEFT JOIN period_closures k ON k.tenant = c.tenant AND k.meter = c.meter AND k.period_start = c.period_start
LEFT JOIN carried_holds h ON h.tenant = c.tenant AND h.meter = c.meter AND h.period_start = c.period_start
