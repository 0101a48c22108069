-- The definitions of tenants and their plans as they held when a period ended; where a tenant was made after that, as
-- they held then.
SELECT w.tenant, w.period_start, t.definition, p.definition AS plan, (
        SELECT c.currency FROM tenant_currencies c
        WHERE c.tenant = w.tenant AND c.from_at <= w.period_start
        ORDER BY c.from_at DESC
        LIMIT 1
    ) AS currency
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS w(tenant, period_start, period_end)
-- Each looks for one version from an end of the key: a tenant may have ten thousands of them.
JOIN LATERAL (
    SELECT h.definition, coalesce(h.effective_at, h.changed_at) AS since
    FROM policy_history h
    WHERE h.kind = 'tenant' AND h.id = w.tenant AND h.definition IS NOT NULL
    ORDER BY h.version
    LIMIT 1
) f ON true
LEFT JOIN LATERAL (
    SELECT h.definition, coalesce(h.effective_at, h.changed_at) AS since
    FROM policy_history h
    WHERE h.kind = 'tenant' AND h.id = w.tenant AND h.definition IS NOT NULL
        AND coalesce(h.effective_at, h.changed_at) < w.period_end
    ORDER BY h.version DESC
    LIMIT 1
) l ON true
CROSS JOIN LATERAL (SELECT coalesce(l.definition, f.definition) AS definition, coalesce(l.since, f.since) AS since) t
LEFT JOIN LATERAL (
    SELECT h.definition
    FROM policy_history h
    WHERE h.kind = 'plan' AND h.id = t.definition ->> 'plan' AND h.definition IS NOT NULL
        AND (coalesce(h.effective_at, h.changed_at) < w.period_end OR coalesce(h.effective_at, h.changed_at) <= t.since)
    ORDER BY h.version DESC
    LIMIT 1
) p ON true
ORDER BY w.tenant, w.period_start, w.period_end
