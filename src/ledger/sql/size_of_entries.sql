SELECT coalesce(sum(pg_table_size(inhrelid)), 0)::bigint AS bytes FROM pg_inherits WHERE inhparent = 'entries'::regclass
