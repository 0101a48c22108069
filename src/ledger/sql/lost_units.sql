SELECT u.meter,
    count(*) AS events,
    sum(u.held)::numeric(28, 9) AS held,
    sum(u.consumed)::numeric(28, 9) AS consumed
FROM losses l, unnest(l.meters, l.held, l.consumed) AS u(meter, held, consumed)
WHERE NOT EXISTS (
    SELECT FROM (
        SELECT r.state, r.epoch, r.sequence FROM reservations r
        WHERE (r.partition, r.id, r.tenant) = (l.partition, l.reservation_id, l.tenant)
        UNION ALL
        SELECT a.state, a.epoch, a.sequence FROM reservations_archive a
        WHERE (a.partition, a.id, a.tenant) = (l.partition, l.reservation_id, l.tenant)
    ) AS b
    WHERE (b.epoch, b.sequence) > (l.epoch, l.sequence)
        AND (l.kind <> 'consume' OR b.state = 'consumed')
        AND (l.kind <> 'release' OR b.state <> 'reserved')
)
GROUP BY 1
ORDER BY 1
