-- Parked admissions that are not booked, in the order in which they were taken. Only an event is born at another time.
SELECT number, tenant, reservation_id, taken_at, payload, state
FROM parked
WHERE tenant = $1 AND state = 'waiting' AND call IN ('reserve', 'usage')
    AND ($2::timestamptz IS NULL OR (taken_at, reservation_id) < ($2, $3))
    AND NOT EXISTS (
        SELECT FROM reservations r WHERE r.partition = parked.partition AND r.id = parked.reservation_id
    )
ORDER BY taken_at DESC, reservation_id DESC
LIMIT $4
