-- The adjustment that the gate was to make by this operation, of which no event is left that could be booked.
UPDATE adjustments a SET state = 'declined'
WHERE a.gate_operation = $1 AND a.state = 'approved'
    AND NOT EXISTS (SELECT FROM quarantine q WHERE q.reservation_id = $1 AND q.status = 'open')
    AND NOT EXISTS (SELECT FROM reservations r WHERE r.partition = get_byte(uuid_send($1), 12) AND r.id = $1)
RETURNING a.id, a.tenant, a.meter, a.gate_period
