-- An event that waits stays, however old it is.
DELETE FROM quarantine
WHERE (partition, epoch, sequence) IN (
    SELECT partition, epoch, sequence FROM quarantine
    WHERE status <> 'open' AND last_at < clock_timestamp() - $2 * interval '1 day'
    LIMIT $1
)
