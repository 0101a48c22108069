SELECT chain, number, rows, hash, previous, booked_at
FROM batches
WHERE (chain, number) > ($1::smallint, $2::bigint) AND chain = ANY($4)
ORDER BY chain, number
LIMIT $3
