-- From the newest down, so that a run reads only what is new. A trigger refuses to delete a row that no kept batch
-- proves.
DELETE FROM batches
WHERE chain = $1 AND number IN (
    SELECT number FROM batches
    WHERE chain = $1 AND number % 1000 <> 0 AND number < (
        SELECT number FROM batches
        WHERE chain = $1 AND number % 1000 = 0 AND booked_at < now() - batch_witness_age()
        ORDER BY number DESC
        LIMIT 1
    )
    ORDER BY number DESC
    LIMIT $2
)
