SELECT chain, number, rows, hash, previous, booked_at
FROM batches
WHERE (chain, number) > ($1::smallint, $2::bigint)
ORDER BY chain, number
LIMIT $3
