SELECT partition, id, born_at, record FROM reservations
WHERE tenant = $1 AND subjects @> ARRAY[$2::bigint] AND (born_at, id) < ($3, $4)
ORDER BY born_at DESC, id DESC
LIMIT $5
