SELECT to_date(right(c.relname, 7), 'YYYY_MM') AS month
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'entries'::regclass AND c.relname ~ '^entries_[0-9]{4}_[0-9]{2}$'
ORDER BY 1
