INSERT INTO key_stretches (partition, number, sealed_at, keys, filter)
SELECT $1,
    1 + greatest(
        coalesce((SELECT max(number) FROM key_stretches WHERE partition = $1), 0),
        coalesce((SELECT up_to FROM key_filters WHERE partition = $1), 0)),
    $2, $3, $4
