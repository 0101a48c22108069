DELETE FROM losses
WHERE (tenant, partition, epoch, sequence) IN (
    SELECT tenant, partition, epoch, sequence FROM losses
    WHERE noticed_at < clock_timestamp() - $2 * interval '1 day'
    LIMIT $1
)
