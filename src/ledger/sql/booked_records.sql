-- Looks up the rows one by one: by its estimates Postgres would read the whole table in every transaction. An id that
-- is found among the open reservations is not looked for among the resolved ones.
SELECT r.id, r.record, r.resolved_at
FROM unnest($1::smallint[], $2::uuid[]) AS w(partition, id)
CROSS JOIN LATERAL (
    SELECT id, record, resolved_at FROM reservations
    WHERE partition = w.partition AND id = w.id
    LIMIT 1
) r
