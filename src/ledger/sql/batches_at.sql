-- In the order asked for. is_proven_later: the row is missing, but retention may have dropped it.
SELECT b.number, b.rows, b.hash,
    p.number % 1000 <> 0 AND EXISTS (
        SELECT FROM batches n
        WHERE n.chain = p.chain AND n.number = (p.number / 1000 + 1) * 1000 AND n.booked_at < now() - batch_witness_age()
    ) AS is_proven_later
FROM unnest($1::smallint[], $2::bigint[]) WITH ORDINALITY AS p(chain, number, place)
LEFT JOIN batches b ON b.chain = p.chain AND b.number = p.number
ORDER BY p.place
