-- The periods that begin at these instants, are open in the books and are not closed, and what they open with: what the
-- plan includes, and what they get of recurring grants, also of one that was made before and begins with the period.
SELECT q.tenant, q.meter, q.period_start, q.period_end, q.included + coalesce(r.amount, 0) AS included
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN quota_periods q USING (tenant, meter, period_start)
-- Looked up one by one: a plan that is made while the table is empty would read all of it later.
LEFT JOIN LATERAL (
    SELECT true AS is_closed FROM period_closures c
    WHERE c.tenant = q.tenant AND c.meter = q.meter AND c.period_start = q.period_start OFFSET 0
) c ON true
LEFT JOIN LATERAL (
    SELECT sum(g.amount) AS amount FROM grants g
    WHERE g.tenant = q.tenant AND g.meter = q.meter AND g.effective_at = q.period_start AND (
        g.repeats IS NOT NULL
        OR g.recurrence = 'period' AND g.created_at < q.period_start AND (g.period_start IS NOT NULL OR g.settled_at IS NULL)
    )
) r ON true
WHERE c.is_closed IS NULL
