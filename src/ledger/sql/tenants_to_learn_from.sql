-- Goes from tenant to tenant: each step is one look into the index of resolutions.
WITH RECURSIVE t AS (
    (SELECT tenant FROM reservations_resolved WHERE tenant > $1 ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT r.tenant FROM reservations_resolved r WHERE r.tenant > t.tenant ORDER BY r.tenant LIMIT 1)
    FROM t WHERE t.tenant IS NOT NULL
)
SELECT p.tenant, m.tenant IS NULL OR NOT $2 <@ m.learned OR EXISTS (
    SELECT FROM reservations_resolved r
    WHERE r.tenant = p.tenant AND r.resolved_at >= m.resolved_at AND (r.epoch, r.sequence) > (m.epoch, m.sequence)
) AS is_due
FROM (SELECT tenant FROM t WHERE tenant IS NOT NULL LIMIT $3) p
LEFT JOIN estimate_marks m ON m.tenant = p.tenant
ORDER BY p.tenant
