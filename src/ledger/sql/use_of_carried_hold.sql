-- What was consumed of the hold that an adjustment names, itself or by another adjustment of it, by the period in which
-- it stands, and what is corrected of it by now: nothing where all of it happened in the hold's own period. What burnt
-- the quota of the period is the excess, and what that was charged of holds, as far as no other one's correction took
-- it back. The gate's clock may be set during a hold's life, by less than a day.
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
    (e.excess + greatest(b.consumed_of_carried - b.carried_in + a.of_others, 0))::numeric(28, 9) AS burnt,
    a.corrected::numeric(28, 9) AS corrected, a.corrected_of_paid::numeric(28, 9) AS corrected_of_paid
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
    SELECT coalesce(sum(booked_amount) FILTER (WHERE carried_hold = h.id), 0) AS corrected,
        coalesce(sum(paid_before) FILTER (WHERE carried_hold = h.id), 0) AS corrected_of_paid,
        coalesce(sum(booked_amount - paid_before) FILTER (WHERE carried_hold <> h.id), 0) AS of_others
    FROM adjustments
    WHERE tenant = $1 AND meter = $2 AND period_start = e.period_start AND carried_hold IS NOT NULL AND state = 'booked'
) a
ORDER BY e.period_start
