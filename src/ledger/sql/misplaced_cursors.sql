SELECT concat('cursor of partition ', partition) AS what, concat('is at ', epoch, '-', sequence, detail) AS detail
FROM (
    SELECT c.partition, c.epoch, c.sequence, concat(', beyond epoch ', e.epoch, ' issued last') AS detail
    FROM cursors c JOIN (SELECT partition, max(epoch) AS epoch FROM epochs GROUP BY 1) e USING (partition)
    WHERE c.epoch > e.epoch
    UNION ALL
    SELECT c.partition, c.epoch, c.sequence, concat(', but reservation ', r.id, ' is booked up to ', r.epoch, '-', r.sequence)
    FROM cursors c JOIN reservations r USING (partition)
    WHERE (r.epoch, r.sequence) > (c.epoch, c.sequence)
) p
WHERE partition = ANY($1)
LIMIT $2
