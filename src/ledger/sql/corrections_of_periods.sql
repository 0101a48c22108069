-- Nobody before the period had paid for `charged` of the holds that were consumed in it. `overage` is the period's own,
-- as its statement has it but for corrections. What came late for earlier periods and did not count beyond the quota
-- took of it: without that, which a note bills, it would be unused too.
SELECT c.tenant, c.meter, c.period_start, c.booked_in, c.consumed, c.adjusted, c.of_held, q.tenant IS NOT NULL AS is_opened,
    coalesce(k.lapsed + k.rolled + greatest(e.consumed - greatest(b.overage - k.paid_by_next, 0) - greatest(coalesce(h.charged - h.returned, 0), 0), 0), 0)
        + coalesce(greatest(h.returned - h.charged, 0), 0) AS unused,
    coalesce(b.consumed_of_carried - b.carried_in, 0) AS charged,
    greatest(coalesce(b.overage - coalesce(k.paid_by_next, 0) - e.consumed, 0), 0) AS overage
FROM unnest($1::text[], $2::timestamptz[]) AS w(tenant, period_start)
JOIN corrections c USING (tenant, period_start)
LEFT JOIN balances b ON b.tenant = c.tenant AND b.meter = c.meter AND b.period_start = c.period_start
LEFT JOIN period_closures k ON k.tenant = c.tenant AND k.meter = c.meter AND k.period_start = c.period_start
LEFT JOIN quota_periods q ON q.tenant = c.tenant AND q.meter = c.meter AND q.period_start = c.period_start
LEFT JOIN carried_holds h ON h.tenant = c.tenant AND h.meter = c.meter AND h.period_start = c.period_start
LEFT JOIN billing g ON g.tenant = c.tenant
CROSS JOIN LATERAL (
    SELECT coalesce(sum(l.consumed), 0) AS consumed
    FROM corrections l
    WHERE l.tenant = c.tenant AND l.meter = c.meter AND l.booked_in = c.period_start AND l.period_start >= g.begun_at
) e
