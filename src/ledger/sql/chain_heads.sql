SELECT c.chain, b.number, b.rows, b.hash
FROM unnest($1::smallint[]) AS c(chain)
JOIN LATERAL (
    SELECT number, rows, hash FROM batches WHERE chain = c.chain
    ORDER BY number DESC LIMIT 1
) b ON true
