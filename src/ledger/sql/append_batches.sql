INSERT INTO batches (chain, number, rows, hash, previous, booked_at)
SELECT b.*, $6::timestamptz
FROM unnest($1::smallint[], $2::bigint[], $3::integer[], $4::bytea[], $5::bytea[]) AS b
