-- What was consumed of the hold that an adjustment names, itself or by another adjustment of it, by the period in which
-- it stands, and what is corrected of it by now: nothing where all of it happened in the hold's own period. The gate's
-- clock may be set during a hold's life, by less than a day.
WITH named AS (
    SELECT coalesce((SELECT carried_hold FROM adjustments WHERE tenant = $1 AND id = $3), $3) AS id
), held AS (
    SELECT l.id, min(least(l.born_at, l.resolved_at)) - interval '1 day' AS from_at,
        max(greatest(l.born_at, coalesce(l.resolved_at, 'infinity'))) + interval '1 day' AS to_at
    FROM (
        SELECT r.id, r.period_start, r.born_at, r.resolved_at FROM named n
        JOIN reservations r ON r.partition = get_byte(uuid_send(n.id), 12) AND r.id = n.id AND r.tenant = $1
        UNION ALL
        SELECT r.id, r.period_start, r.born_at, r.resolved_at FROM named n
        JOIN reservations_archive r ON r.partition = get_byte(uuid_send(n.id), 12) AND r.id = n.id AND r.tenant = $1
    ) l
    JOIN balances b ON b.tenant = $1 AND b.meter = $2 AND b.period_start = l.period_start
    WHERE coalesce(l.resolved_at, 'infinity') >= b.period_end OR EXISTS (
        SELECT FROM carried_holds h WHERE h.tenant = $1 AND h.meter = $2 AND h.period_start = l.period_start
    )
    GROUP BY l.id
)
SELECT h.id AS hold, e.period_start, b.period_end, e.carried, e.consumed::numeric(28, 9) AS consumed,
    e.excess::numeric(28, 9) AS excess, a.corrected::numeric(28, 9) AS corrected,
    a.corrected_of_held::numeric(28, 9) AS corrected_of_held
FROM held h
CROSS JOIN LATERAL (
    SELECT period_start, bool_or(carried) AS carried, sum(amount) AS consumed,
        coalesce(sum(amount) FILTER (WHERE excess), 0) AS excess
    FROM entries
    WHERE tenant = $1 AND meter = $2 AND operation_id = h.id AND happened_at >= h.from_at AND happened_at < h.to_at
        AND class = 'usage' AND debit = 'consumed'
    GROUP BY period_start
) e
JOIN balances b ON b.tenant = $1 AND b.meter = $2 AND b.period_start = e.period_start
CROSS JOIN LATERAL (
    SELECT coalesce(sum(booked_amount), 0) AS corrected, coalesce(sum(of_held), 0) AS corrected_of_held
    FROM adjustments
    WHERE tenant = $1 AND meter = $2 AND period_start = e.period_start AND carried_hold = h.id AND state = 'booked'
) a
ORDER BY e.period_start
