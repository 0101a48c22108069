SELECT kind, id FROM subjects WHERE tenant = $1 LIMIT $2
