-- Periods that follow policy, of one tenant or of all: those that have begun so long ago that they need not any more,
-- that were just opened ahead, and those since whose terms a plan or their tenant has changed in a way that holds when
-- they begin.
SELECT q.tenant, q.meter, q.period_start
FROM quota_periods q
WHERE q.followed_version IS NOT NULL
    AND ($1::text IS NULL OR q.tenant = $1)
    AND ($2::text IS NULL OR (q.tenant, q.meter, q.period_start) > ($2, $3::text, $4::timestamptz))
    AND (
        q.period_start <= $5 OR q.followed_version = 0
        OR EXISTS (
            SELECT FROM policy_history h
            WHERE h.kind = 'plan' AND h.policy_version > q.followed_version
                AND coalesce(h.effective_at, h.changed_at) < q.period_start
                AND (h.id = (
                    SELECT t.definition ->> 'plan' FROM policy_history t
                    WHERE t.kind = 'tenant' AND t.id = q.tenant AND t.definition IS NOT NULL
                        AND coalesce(t.effective_at, t.changed_at) < q.period_start
                    ORDER BY t.version DESC
                    LIMIT 1
                ) OR EXISTS (
                    SELECT FROM upgrade_requests u WHERE u.tenant = q.tenant AND u.plan = h.id AND u.effective_at <= q.period_start
                ))
        )
        OR EXISTS (
            SELECT FROM policy_history h
            WHERE h.kind = 'tenant' AND h.id = q.tenant AND h.policy_version > q.followed_version
                AND coalesce(h.effective_at, h.changed_at) < q.period_start
        )
    )
ORDER BY q.tenant, q.meter, q.period_start
LIMIT $6
