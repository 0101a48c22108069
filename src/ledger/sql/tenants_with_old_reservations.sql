-- Goes from tenant to tenant: each step is one look into the index of the newest reservations.
WITH RECURSIVE t AS (
    (SELECT tenant FROM reservations WHERE tenant > $1 ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT r.tenant FROM reservations r WHERE r.tenant > t.tenant ORDER BY r.tenant LIMIT 1)
    FROM t WHERE t.tenant IS NOT NULL
)
SELECT p.tenant, EXISTS (SELECT FROM reservations r WHERE r.tenant = p.tenant AND r.born_at < $2) AS is_old
FROM (SELECT tenant FROM t WHERE tenant IS NOT NULL LIMIT $3) p
ORDER BY p.tenant
