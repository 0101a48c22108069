-- A page of the grants of these tenants of which what was unburnt at an end cut is booked, with the periods in which
-- they ended.
SELECT g.tenant, g.id, g.meter, q.period_start, q.period_end, q.included, b.rolled_in, g.settled_amount
FROM grants g
JOIN cuts e ON e.tenant = g.tenant AND e.grant_id = g.id AND e.is_end
LEFT JOIN LATERAL (
    SELECT max(c.period_start) AS period_start FROM continued_grants c WHERE c.tenant = g.tenant AND c.grant_id = g.id
) l ON true
JOIN quota_periods q ON q.tenant = g.tenant AND q.meter = g.meter AND q.period_start = coalesce(l.period_start, g.period_start)
JOIN balances b ON b.tenant = q.tenant AND b.meter = q.meter AND b.period_start = q.period_start
WHERE g.tenant = ANY($1) AND g.settled_amount IS NOT NULL AND ($2::text IS NULL OR (g.tenant, g.id) > ($2, $3::uuid))
ORDER BY g.tenant, g.id
LIMIT $4
