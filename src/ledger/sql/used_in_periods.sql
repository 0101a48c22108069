-- What the gate has of grants that go on, before a close brings them, is not used beyond the quota.
SELECT b.tenant, b.meter, b.period_start, b.available + coalesce(a.amount, 0) AS available, b.reserved, b.consumed - b.adjusted AS consumed,
    b.overage - coalesce(c.paid_by_next, 0) AS overage, c.tenant IS NOT NULL AS is_closed
FROM unnest($1::text[], $2::timestamptz[]) AS w(tenant, period_start)
JOIN balances b USING (tenant, period_start)
LEFT JOIN period_closures c USING (tenant, meter, period_start)
LEFT JOIN LATERAL (
    SELECT sum(v.amount) AS amount FROM grant_advances v
    WHERE v.tenant = b.tenant AND v.meter = b.meter AND v.period_start = b.period_start
) a ON true
