SELECT id, record FROM reservations WHERE tenant = $1 AND state = 'reserved' ORDER BY expires_at, id
