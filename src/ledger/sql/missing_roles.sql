SELECT role FROM unnest(ARRAY['tollgate_service', 'tollgate_writer']) AS role
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role)
ORDER BY role
