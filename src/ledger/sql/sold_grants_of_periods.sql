-- The sold grants in the books of these periods that have not ended. One that goes on may have been voided after its
-- period: its cut is of a later one.
SELECT g.tenant, g.meter, w.period_start, g.id, g.amount, CASE WHEN g.goes_on THEN g.voided_at END AS voided_at
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN grant_sales s ON s.tenant = w.tenant AND s.meter = w.meter AND NOT s.is_over
JOIN grants g ON g.tenant = s.tenant AND g.id = s.grant_id AND (
    g.period_start = w.period_start OR EXISTS (
        SELECT FROM continued_grants c WHERE c.tenant = g.tenant AND c.grant_id = g.id AND c.period_start = w.period_start
    )
)
ORDER BY g.tenant, g.id
