SELECT DISTINCT reservation_id FROM quarantine WHERE status = 'open' AND reservation_id = ANY($1)
