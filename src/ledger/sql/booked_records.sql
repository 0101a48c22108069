-- Looked up one by one: by the sizes it guesses, Postgres would rather read the whole table for every transaction. Who is found
-- among the open ones is not looked for among the resolved.
SELECT r.id, r.record, r.resolved_at
FROM unnest($1::smallint[], $2::uuid[]) AS w(partition, id)
CROSS JOIN LATERAL (
    SELECT id, record, resolved_at FROM reservations
    WHERE partition = w.partition AND id = w.id
    LIMIT 1
) r
