SELECT pg_advisory_xact_lock(hashtext('tollgate parking'), $1::smallint::integer)
