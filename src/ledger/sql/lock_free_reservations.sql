SELECT id FROM unnest($1::uuid[], $2::bigint[]) AS r(id, key) WHERE NOT pg_try_advisory_xact_lock(key)
