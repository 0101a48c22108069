-- One entry of each index. An event of a past time is taken long after its birth: its row was resolved then.
(SELECT born_at AS latest_at FROM reservations
WHERE partition = $3 AND tenant = $1 AND born_at >= $2
ORDER BY born_at DESC LIMIT 1)
UNION ALL
(SELECT resolved_at FROM reservations_resolved
WHERE partition = $3 AND tenant = $1 AND resolved_at >= $2
ORDER BY resolved_at DESC LIMIT 1)
ORDER BY latest_at DESC LIMIT 1
