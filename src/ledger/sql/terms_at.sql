-- The definitions of tenants and their plans as they held when a period ended; where a tenant was made after that, as
-- they held then.
SELECT w.tenant, w.period_start, t.definition, p.definition AS plan, (
        SELECT c.currency FROM tenant_currencies c
        WHERE c.tenant = w.tenant AND c.from_at <= w.period_start
        ORDER BY c.from_at DESC
        LIMIT 1
    ) AS currency
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS w(tenant, period_start, period_end)
JOIN LATERAL (
    SELECT h.definition, h.held, h.since
    FROM (
        SELECT definition, version, coalesce(effective_at, changed_at) AS since,
            coalesce(effective_at, changed_at) < w.period_end AS held
        FROM policy_history
        WHERE kind = 'tenant' AND id = w.tenant AND definition IS NOT NULL
    ) h
    ORDER BY h.held DESC, CASE WHEN h.held THEN -h.version ELSE h.version END
    LIMIT 1
) t ON true
LEFT JOIN LATERAL (
    SELECT h.definition
    FROM policy_history h
    WHERE h.kind = 'plan' AND h.id = t.definition ->> 'plan' AND h.definition IS NOT NULL
        AND (coalesce(h.effective_at, h.changed_at) < w.period_end OR coalesce(h.effective_at, h.changed_at) <= t.since)
    ORDER BY h.version DESC
    LIMIT 1
) p ON true
ORDER BY w.tenant, w.period_start, w.period_end
