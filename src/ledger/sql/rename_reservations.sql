UPDATE reservations r SET record = w.record
FROM unnest($2::smallint[], $3::uuid[], $4::timestamptz[], $5::bytea[]) AS w(partition, id, born_at, record)
WHERE r.partition = w.partition AND r.id = w.id AND r.tenant = $1 AND r.born_at = w.born_at
