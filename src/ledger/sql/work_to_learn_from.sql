-- The latest resolved work of each of these tenants, oldest first: all of it where a cost is learned for the first
-- time, else what is new. Work that was taken while the gate was away is booked after work that was resolved later, so
-- it is looked for a while back.
SELECT m.tenant, w.resolved_at, w.epoch, w.sequence, (w.epoch, w.sequence) > (m.epoch, m.sequence) AS is_new,
    CASE WHEN w.state = 'consumed' AND w.operation = ANY($3) THEN w.record END AS record
FROM estimate_marks m
CROSS JOIN LATERAL (
    SELECT r.* FROM reservations_resolved r
    WHERE r.tenant = m.tenant
        AND r.resolved_at >= CASE WHEN $2 <@ m.learned THEN m.resolved_at - interval '15 minutes' ELSE '-infinity' END
    ORDER BY r.resolved_at DESC, r.id DESC LIMIT $4
) w
WHERE m.tenant = ANY($1) AND ((w.epoch, w.sequence) > (m.epoch, m.sequence) OR NOT $2 <@ m.learned)
ORDER BY m.tenant, w.epoch, w.sequence
