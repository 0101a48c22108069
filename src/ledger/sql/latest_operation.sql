SELECT born_at FROM reservations
WHERE partition = $3 AND tenant = $1 AND born_at >= $2
ORDER BY born_at DESC LIMIT 1
