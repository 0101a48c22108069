SELECT pg_notify($1, text) FROM unnest($2::text[]) AS text
