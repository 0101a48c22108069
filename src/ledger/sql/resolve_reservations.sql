-- Open reservations that are resolved now. They are looked up one by one: Postgres would misjudge how many there are.
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest($1::booked_reservation[])
), gone AS (
    DELETE FROM reservations_open WHERE ctid = ANY (ARRAY(
        SELECT o.place FROM ended e
        CROSS JOIN LATERAL (
            SELECT ctid AS place FROM reservations_open
            WHERE partition = e.partition AND id = e.id AND tenant = e.tenant
            OFFSET 0
        ) o
    ))
)
INSERT INTO reservations_resolved (partition, id, tenant, state, step, epoch, sequence, record, uncharged, fingerprint,
    keyed, operation, policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at)
SELECT partition, id, tenant, state, step, epoch, sequence, record, uncharged, fingerprint,
    keyed, operation, policy_version, period_start, meters, subjects, born_at, expires_at, resolved_at
FROM ended
