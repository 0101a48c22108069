-- A tenant's oldest reservations first, after a cursor. It reads the index of the list of reservations: retention needs
-- no index of its own, and a run passes old rows once. A reservation with an open event in quarantine stays, because
-- that event must still find its row.
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
