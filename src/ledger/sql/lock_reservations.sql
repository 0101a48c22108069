SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key
