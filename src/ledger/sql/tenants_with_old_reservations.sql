-- Goes from tenant to tenant: each step is one look into the index of resolutions.
WITH RECURSIVE t AS (
    (SELECT tenant FROM reservations_resolved WHERE tenant > $1 ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT r.tenant FROM reservations_resolved r WHERE r.tenant > t.tenant ORDER BY r.tenant LIMIT 1)
    FROM t WHERE t.tenant IS NOT NULL
)
SELECT p.tenant, coalesce($2 > (
    SELECT r.resolved_at FROM reservations_resolved r WHERE r.tenant = p.tenant ORDER BY r.resolved_at LIMIT 1
), false) AS is_old
FROM (SELECT tenant FROM t WHERE tenant IS NOT NULL LIMIT $3) p
ORDER BY p.tenant
