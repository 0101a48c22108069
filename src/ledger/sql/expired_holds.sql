-- Booked and archived rows. Each branch reads an index of expired holds alone, in the list's order;
-- a condition inside a branch would keep it from that.
SELECT r.id, r.record, r.resolved_at,
    EXISTS (SELECT FROM quarantine q WHERE q.status = 'open' AND q.reservation_id = r.id) AS quarantined
FROM (
    SELECT id, tenant, record, resolved_at, meters, state FROM reservations_resolved
    UNION ALL
    SELECT id, tenant, record, resolved_at, meters, state FROM reservations_archive
) r
WHERE r.state = 'expired' AND ($1::text IS NULL OR r.tenant = $1)
    AND ($2::text IS NULL OR $2 = ANY(r.meters))
    AND ($3::timestamptz IS NULL OR r.resolved_at >= $3)
    AND ($4::timestamptz IS NULL OR r.resolved_at < $4)
    AND ($5::timestamptz IS NULL OR (r.resolved_at, r.id) < ($5, $6::uuid))
ORDER BY r.resolved_at DESC, r.id DESC
LIMIT $7
