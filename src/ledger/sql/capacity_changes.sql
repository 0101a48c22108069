-- What is not booked of grants that are not settled: they begin later, end later, or are voided, so that all of them
-- may be gone; and what a plan that was lowered takes away: all of it may have to go. A grant that goes on ends in one
-- period, where what is left of it may go. Where such a grant comes from the period before, and nobody has found out
-- how much of it, the capacity is a bound from the start on. Where a grant has ended, what the gate is to take back may
-- leave so much more of it unburnt.
SELECT g.tenant, g.meter, w.period_start, c.changes_at, c.rise, c.is_end
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
JOIN grants g ON g.tenant = w.tenant AND g.meter = w.meter
    AND g.effective_at >= w.period_start AND g.effective_at < w.period_end
CROSS JOIN LATERAL (
    SELECT g.effective_at AS changes_at, g.amount AS rise, false AS is_end WHERE g.period_start IS NULL
    UNION ALL
    SELECT CASE WHEN g.voided_at IS NULL THEN g.expires_at ELSE w.period_start END, -g.amount, true
    WHERE coalesce(g.voided_at, g.expires_at) < w.period_end
) c
WHERE g.settled_at IS NULL
UNION ALL
SELECT g.tenant, g.meter, w.period_start, CASE WHEN g.voided_at IS NULL THEN g.expires_at ELSE w.period_start END, -c.amount, true
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
CROSS JOIN LATERAL (
    SELECT n.grant_id, n.amount FROM continued_grants n
    WHERE n.tenant = w.tenant AND n.meter = w.meter AND n.period_start = w.period_start
    UNION ALL
    SELECT v.grant_id, v.amount FROM grant_advances v
    WHERE v.tenant = w.tenant AND v.meter = w.meter AND v.period_start = w.period_start AND v.amount > 0
) c
JOIN grants g ON g.tenant = w.tenant AND g.id = c.grant_id
WHERE g.settled_at IS NULL AND coalesce(g.voided_at, g.expires_at) < w.period_end
UNION ALL
SELECT q.tenant, q.meter, w.period_start, w.period_start, q.amount, true
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN quota_changes q USING (tenant, meter, period_start)
WHERE q.amount < 0 AND q.changed IS NULL
UNION ALL
SELECT p.tenant, p.meter, w.period_start, w.period_start, 0, true
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN periods_to_advance p ON p.tenant = w.tenant AND p.meter = w.meter AND p.period_end = w.period_start
UNION ALL
SELECT u.tenant, u.meter, w.period_start, w.period_start, -u.amount, true
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN unwindings u USING (tenant, meter, period_start)
WHERE NOT u.is_settled
UNION ALL
SELECT a.tenant, a.meter, w.period_start, w.period_start, a.amount, true
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN adjustments a ON a.tenant = w.tenant AND a.meter = w.meter AND a.gate_period = w.period_start
WHERE a.state = 'approved' AND a.amount < 0
    AND EXISTS (
        SELECT FROM cuts c
        JOIN grants g ON g.tenant = c.tenant AND g.id = c.grant_id
        WHERE c.tenant = w.tenant AND c.meter = w.meter AND c.period_start = w.period_start AND c.is_end
    )
    AND NOT EXISTS (
        SELECT FROM unwindings u WHERE u.tenant = a.tenant AND u.operation_id = a.gate_operation AND u.meter = a.meter
    )
