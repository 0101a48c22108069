-- What policy says of periods as they begin: the plan that their tenants are on then, or are put on by then by an
-- approved request; beside what they were opened with, the next step of their openings, and whether something stands in
-- them that does not follow policy.
SELECT q.tenant, q.meter, q.period_start, q.period_end, q.decimals, q.included,
    t.tenant IS NOT NULL AND (n.plan IS NULL OR p.definition IS NOT NULL) AS is_known, p.definition AS plan,
    1 + coalesce((
        SELECT max(e.step) FROM entries e
        WHERE e.tenant = q.tenant AND e.happened_at = q.period_start AND e.operation_id = w.operation_id
    ), 0) AS step,
    EXISTS (
        SELECT FROM grants g
        WHERE g.tenant = q.tenant AND g.meter = q.meter AND g.effective_at >= q.period_start
            AND g.effective_at < q.period_end AND g.period_start = q.period_start
    ) OR EXISTS (
        SELECT FROM rolled_amounts r
        WHERE r.tenant = q.tenant AND r.meter = q.meter AND r.period_start = q.period_start
    ) OR EXISTS (
        SELECT FROM continued_grants c
        WHERE c.tenant = q.tenant AND c.meter = q.meter AND c.period_start = q.period_start
    ) AS keeps
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::uuid[]) AS w(tenant, meter, period_start, operation_id)
JOIN quota_periods q USING (tenant, meter, period_start)
LEFT JOIN period_closures k USING (tenant, meter, period_start)
LEFT JOIN LATERAL (
    SELECT h.id AS tenant, h.definition ->> 'plan' AS plan
    FROM policy_history h
    WHERE h.kind = 'tenant' AND h.id = q.tenant AND h.definition IS NOT NULL
        AND coalesce(h.effective_at, h.changed_at) < q.period_start
    ORDER BY h.version DESC
    LIMIT 1
) t ON true
LEFT JOIN LATERAL (
    SELECT u.plan
    FROM upgrade_requests u
    WHERE u.tenant = q.tenant AND u.effective_at <= q.period_start
        AND (u.applied_at IS NULL OR u.applied_at >= q.period_start)
    ORDER BY u.effective_at DESC
    LIMIT 1
) u ON true
CROSS JOIN LATERAL (SELECT coalesce(u.plan, t.plan) AS plan) n
LEFT JOIN LATERAL (
    SELECT h.definition
    FROM policy_history h
    WHERE h.kind = 'plan' AND h.id = n.plan AND h.definition IS NOT NULL
        AND coalesce(h.effective_at, h.changed_at) < q.period_start
    ORDER BY h.version DESC
    LIMIT 1
) p ON true
WHERE q.followed_version IS NOT NULL AND k.tenant IS NULL AND NOT EXISTS (
    -- An instance of an earlier version has raised or lowered it.
    SELECT FROM quota_changes c
    WHERE c.tenant = q.tenant AND c.meter = q.meter AND c.period_start = q.period_start AND c.asked_at < q.period_start
)
ORDER BY q.tenant, q.meter, q.period_start
