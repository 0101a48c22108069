-- A tenant's oldest first, from a place on: by the index that lists them, so that no index serves retention alone and a
-- run goes through what is old once. One with an event in quarantine stays: that event has yet to find its row.
WITH old AS (
    SELECT r.partition, r.id, r.tenant FROM reservations r
    WHERE r.tenant = $1 AND r.born_at < $2 AND (r.born_at, r.id) > ($3, $4)
        AND r.resolved_at < $2 AND r.state <> 'reserved' AND (r.state <> 'expired' OR r.resolved_at < $6)
        AND NOT EXISTS (SELECT FROM quarantine q WHERE q.reservation_id = r.id AND q.status = 'open')
    ORDER BY r.born_at, r.id
    LIMIT $5
    FOR UPDATE SKIP LOCKED
), moved AS (
    DELETE FROM reservations r USING old o
    WHERE r.partition = o.partition AND r.id = o.id AND r.tenant = o.tenant
    RETURNING r.*
), added AS (
    INSERT INTO reservations_archive SELECT m.*, now() FROM moved m RETURNING born_at, id
)
SELECT count(*) OVER () AS moved, born_at, id FROM added ORDER BY born_at DESC, id DESC LIMIT 1
