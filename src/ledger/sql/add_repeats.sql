INSERT INTO repeats (partition, epoch, sequence, reservation_id, tenant, event, undone_at, undone_sequence)
SELECT partition, epoch, sequence, id, tenant,
    CASE WHEN begins THEN event END,
    CASE WHEN NOT begins THEN now() END,
    CASE WHEN NOT begins THEN sequence END
FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::uuid[], $5::text[], $6::bytea[], $7::boolean[])
    AS r(partition, epoch, sequence, id, tenant, event, begins)
ON CONFLICT DO NOTHING
