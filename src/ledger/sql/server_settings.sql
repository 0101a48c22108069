SELECT name, setting FROM pg_settings WHERE name = ANY($1::text[])
UNION ALL
SELECT 'connections', count(*)::text FROM pg_stat_activity WHERE backend_type = 'client backend'
UNION ALL
SELECT 'is_superuser', (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)::text
