SELECT w.place, c.epoch, c.sequence,
    coalesce((
        SELECT r.epoch <= w.epoch AND (r.step > w.step OR (r.step = w.step AND r.sequence = w.sequence))
        FROM reservations r WHERE r.partition = w.partition AND r.id = w.id LIMIT 1
    ), false) AS row_has_it,
    EXISTS (
        SELECT FROM quarantine q
        WHERE q.status = 'open' AND q.reservation_id = w.id AND (q.epoch, q.sequence) <= (w.epoch, w.sequence)
    ) AS quarantined
FROM unnest($1::smallint[], $2::uuid[], $3::integer[], $4::bigint[], $5::bigint[])
    WITH ORDINALITY AS w(partition, id, step, epoch, sequence, place)
JOIN cursors c ON c.partition = w.partition
