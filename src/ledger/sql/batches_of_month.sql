-- Of each chain with entries that leave: its batches among them, and the first kept row of a batch from there on.
SELECT m.chain, m.first_batch, m.last_batch, b.number, b.hash
FROM (
    SELECT chain, min(batch) AS first_batch, max(batch) AS last_batch FROM entries
    WHERE happened_at >= $1 AND happened_at < $2 AND class = 'usage'
    GROUP BY chain
) m
CROSS JOIN LATERAL (
    SELECT number, hash FROM batches b
    WHERE b.chain = m.chain AND b.number >= m.last_batch
        AND b.number >= coalesce((SELECT max(o.number) FROM opening_chains o WHERE o.chain = m.chain), 0)
    ORDER BY b.number
    LIMIT 1
) b
ORDER BY m.chain
