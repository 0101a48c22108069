-- What is booked as burnt, up to these periods, of the sold grants that stand in them.
SELECT w.tenant, w.meter, w.period_start, s.grant_id, s.amount, coalesce(b.burnt, 0) AS burnt
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
CROSS JOIN LATERAL (
    SELECT g.id FROM grants g
    WHERE g.tenant = w.tenant AND g.meter = w.meter AND g.effective_at >= w.period_start AND g.effective_at < w.period_end
        AND g.period_start = w.period_start
    UNION ALL
    SELECT c.grant_id FROM continued_grants c
    WHERE c.tenant = w.tenant AND c.meter = w.meter AND c.period_start = w.period_start
) g
JOIN grant_sales s ON s.tenant = w.tenant AND s.grant_id = g.id
LEFT JOIN LATERAL (
    SELECT sum(b.amount) AS burnt FROM grant_burns b
    WHERE b.tenant = s.tenant AND b.grant_id = s.grant_id AND b.period_start <= w.period_start
) b ON true
