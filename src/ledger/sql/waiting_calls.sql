-- What was delivered in this epoch waits for its booking only. The array is read once: a join is planned by how many
-- calls waited before the gate went away, which is none.
SELECT number, tenant, reservation_id, taken_at, payload, state
FROM parked
WHERE tenant = $1 AND state = 'waiting' AND ($2::uuid IS NULL OR reservation_id = $2) AND delivered_in IS DISTINCT FROM $3
    AND reservation_id = ANY (ARRAY(
        SELECT next.reservation_id FROM parked AS next
        WHERE tenant = $1 AND state = 'waiting' AND ($2 IS NULL OR reservation_id = $2) AND delivered_in IS DISTINCT FROM $3
            AND next.reservation_id NOT IN (SELECT unnest($5::uuid[]))
        ORDER BY next.number LIMIT $4
    ))
ORDER BY number
