-- Booked and archived rows. Each branch reads an index in the list's order.
SELECT r.id, r.record, r.resolved_at,
    EXISTS (SELECT FROM quarantine q WHERE q.status = 'open' AND q.reservation_id = r.id) AS quarantined
FROM (
    SELECT id, tenant, record, resolved_at, state, meters, subjects, born_at FROM reservations
    UNION ALL
    SELECT id, tenant, record, resolved_at, state, meters, subjects, born_at FROM reservations_archive
) r
WHERE r.tenant = $1
    AND ($2::text IS NULL OR r.state = $2 OR r.id = ANY($9))
    AND ($3::text IS NULL OR $3 = ANY(r.meters))
    AND ($4::text IS NULL OR r.subjects && (
        SELECT array_agg(s.number) FROM subjects s WHERE s.tenant = $1 AND s.kind = $4 AND s.id = $5
    ))
    AND ($6::timestamptz IS NULL OR (r.born_at, r.id) < ($6, $7))
ORDER BY r.born_at DESC, r.id DESC
LIMIT $8
