SELECT pg_advisory_xact_lock_shared(hashtext('tollgate parking'), p) FROM unnest($1::smallint[]) AS p
