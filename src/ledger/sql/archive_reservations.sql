-- A tenant's reservations in the order of their resolution, after a cursor. An event may be resolved weeks after its
-- birth: the order of births would pass rows that stay, in every run. A reservation with an open event in quarantine
-- stays, because that event must still find its row.
WITH old AS (
    SELECT r.partition, r.id, r.tenant FROM reservations_resolved r
    WHERE r.tenant = $1 AND r.resolved_at < $2 AND (r.resolved_at, r.id) > ($3, $4)
        AND (r.state <> 'expired' OR r.resolved_at < $6)
        AND NOT EXISTS (SELECT FROM quarantine q WHERE q.reservation_id = r.id AND q.status = 'open')
    ORDER BY r.resolved_at, r.id
    LIMIT $5
    FOR UPDATE SKIP LOCKED
), moved AS (
    DELETE FROM reservations_resolved r USING old o
    WHERE r.partition = o.partition AND r.id = o.id AND r.tenant = o.tenant
    RETURNING r.*
), added AS (
    INSERT INTO reservations_archive SELECT m.*, now() FROM moved m RETURNING resolved_at, id
)
SELECT count(*) OVER () AS moved, resolved_at, id FROM added ORDER BY resolved_at DESC, id DESC LIMIT 1
