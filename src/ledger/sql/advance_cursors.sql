-- Locks the rows in order, so that two transactions never wait for each other. An abandoned tail is never booked:
-- calls that waited for it have gone on without it.
WITH locked AS MATERIALIZED (
    SELECT partition FROM cursors WHERE partition = ANY ($1) ORDER BY partition FOR NO KEY UPDATE
)
UPDATE cursors c
SET epoch = m.epoch, sequence = m.sequence, event_hash = m.event_hash, booked_at = now()
FROM locked JOIN unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[])
    AS m(partition, from_epoch, from_sequence, first_epoch, epoch, sequence, event_hash) USING (partition)
WHERE c.partition = m.partition AND c.epoch = m.from_epoch AND c.sequence = m.from_sequence AND c.given_up < m.first_epoch
RETURNING c.partition, c.booked_at, c.erasures
