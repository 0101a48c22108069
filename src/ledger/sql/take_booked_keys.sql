DELETE FROM booked_keys
WHERE number IN (
    SELECT number FROM (
        SELECT number, sum(length(ids)) OVER (ORDER BY number) - length(ids) AS bytes_before
        FROM (SELECT number, ids FROM booked_keys ORDER BY number LIMIT $1) oldest
    ) counted
    WHERE bytes_before < $2
)
RETURNING ids
