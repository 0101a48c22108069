-- Usage is looked up by meter and hour, so the tenant's meters are taken from its balances. Each name is looked up by
-- itself. The books go on under the pseudonym of a name that was erased, and nothing counts under it at the gate.
SELECT s.number, s.kind, s.id
FROM (
    SELECT a.number FROM (
        SELECT u.subject AS number
        FROM (SELECT DISTINCT meter FROM balances WHERE tenant = $1) m
        JOIN usage_hourly u ON u.tenant = $1 AND u.meter = m.meter AND u.hour_at >= $3
        WHERE u.subject <> 0
        UNION
        SELECT unnest(r.subjects) FROM reservations_open r WHERE r.tenant = $1
    ) a
    WHERE a.number > $5
    ORDER BY a.number
) n
CROSS JOIN LATERAL (
    SELECT number, kind, id FROM subjects
    WHERE tenant = $1 AND number = n.number AND kind = ANY($2) AND id <> 'erased-' || number
    OFFSET 0
) s
ORDER BY n.number
LIMIT $4
