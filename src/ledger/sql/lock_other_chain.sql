SELECT now() AS booked_at
FROM pg_advisory_xact_lock(hashtext('tollgate other chain'), $1::smallint::integer)
