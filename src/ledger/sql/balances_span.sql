-- Of entries that have left the books nothing can be taken off: the batch in which the last of them was booked, or the
-- next one whose row is kept, says up to when. Now is a whole millisecond.
SELECT (
        SELECT max(b.booked_at)
        FROM (SELECT chain, max(number) AS number FROM opening_chains GROUP BY chain) o
        CROSS JOIN LATERAL (
            SELECT booked_at FROM batches WHERE chain = o.chain AND number >= o.number ORDER BY number LIMIT 1
        ) b
    ) AS from_at,
    date_trunc('milliseconds', now()) AS now
