-- Goes from tenant to tenant by an index.
WITH issued AS (
    SELECT partition, max(epoch) AS epoch FROM epochs GROUP BY partition
), page AS (
    SELECT DISTINCT r.tenant
    FROM reservations_open r JOIN issued e ON e.partition = r.partition AND r.epoch < e.epoch
    WHERE r.tenant > $1 AND r.partition = ANY($3)
    ORDER BY r.tenant
    LIMIT $2
)
SELECT DISTINCT p.tenant, s.kind, s.id
FROM page p
LEFT JOIN LATERAL (
    SELECT DISTINCT unnest(r.subjects) AS number FROM reservations_open r
    WHERE r.tenant = p.tenant
) n ON true
LEFT JOIN LATERAL (
    -- Looks up names one by one: a page names few of a tenant's subjects.
    SELECT kind, id FROM subjects WHERE tenant = p.tenant AND number = n.number
    OFFSET 0
) s ON true
ORDER BY p.tenant, s.kind, s.id
