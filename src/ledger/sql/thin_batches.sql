-- From the newest down, so that a run goes through what is new. The trigger refuses what no kept batch proves.
DELETE FROM batches
WHERE chain = $1 AND number IN (
    SELECT number FROM batches
    WHERE chain = $1 AND number % 1000 <> 0
        AND number < (SELECT max(number) / 1000 * 1000 FROM batches WHERE chain = $1)
    ORDER BY number DESC
    LIMIT $2
)
