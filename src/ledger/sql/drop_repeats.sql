-- Repeats of epochs before the cursor's: no checkpoint asks about them any more.
DELETE FROM repeats
WHERE (partition, epoch, sequence) IN (
    SELECT r.partition, r.epoch, r.sequence
    FROM cursors c JOIN repeats r ON r.partition = c.partition AND r.epoch < c.epoch
    WHERE r.undone_at IS NOT NULL
    LIMIT $1
)
