SELECT name, setting FROM pg_settings WHERE name = ANY($1::text[])
UNION ALL
SELECT 'is_superuser', (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)::text
