-- When a tenant, or a plan that it has been on, was changed after a period's end: instants just behind the changes.
SELECT DISTINCT coalesce(h.effective_at, h.changed_at) + interval '1 microsecond' AS changed_at
FROM policy_history h
WHERE h.definition IS NOT NULL AND coalesce(h.effective_at, h.changed_at) >= $2 AND (
        (h.kind = 'tenant' AND h.id = $1)
        OR (h.kind = 'plan' AND h.id IN (
            SELECT t.definition ->> 'plan' FROM policy_history t WHERE t.kind = 'tenant' AND t.id = $1))
    )
ORDER BY changed_at
LIMIT $3
