-- Leaves out holds with an event in quarantine: settling that event decides them.
SELECT r.id, r.tenant, r.expires_at
FROM reservations_open r
WHERE r.expires_at < $1 AND (r.tenant, r.expires_at, r.id) > ($2, $3, $4)
    AND NOT EXISTS (SELECT FROM quarantine q WHERE q.status = 'open' AND q.reservation_id = r.id)
ORDER BY r.tenant, r.expires_at, r.id
LIMIT $5
