WITH moved AS (
    DELETE FROM reservations WHERE partition = $1 AND id = $2 RETURNING *
)
INSERT INTO reservations_archive SELECT m.*, now() FROM moved m
