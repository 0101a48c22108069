-- A gap of the epoch that lasts stays: comparisons of the gate with the books count it.
DELETE FROM gaps
WHERE (partition, found_epoch, found_sequence) IN (
    SELECT g.partition, g.found_epoch, g.found_sequence
    FROM gaps g
    JOIN cursors c ON c.partition = g.partition AND c.epoch > g.found_epoch
    WHERE g.noticed_at < clock_timestamp() - $2 * interval '1 day'
    LIMIT $1
)
