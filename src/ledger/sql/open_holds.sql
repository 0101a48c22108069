SELECT id, record FROM reservations_open WHERE tenant = $1 ORDER BY expires_at, id
