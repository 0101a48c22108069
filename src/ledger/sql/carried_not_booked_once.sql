-- Holds that a close carried over: what left the period is what entered the next one, and what returned of them is
-- booked. And closed periods in which something is available or held again.
WITH carried AS (
    SELECT tenant, meter, next_start AS period_start, sum(held - charged) AS held, sum(returned) AS returned
    FROM carried_holds WHERE tenant = ANY($1)
    GROUP BY 1, 2, 3
), booked AS (
    SELECT tenant, meter, period_start,
        coalesce(sum(amount) FILTER (WHERE credit = 'carried_in'), 0) AS held,
        coalesce(sum(amount) FILTER (WHERE carried), 0) AS returned
    FROM entries
    WHERE tenant = ANY($1) AND class = 'period' AND (credit = 'carried_in' OR carried)
    GROUP BY 1, 2, 3
), left_over AS (
    SELECT tenant, meter, h.period_start, h.held - h.charged AS held, b.carried_out
    FROM carried_holds h
    LEFT JOIN balances b USING (tenant, meter, period_start)
    WHERE tenant = ANY($1)
)
SELECT concat_ws(' ', 'holds carried to', tenant, meter, period_start AT TIME ZONE 'UTC') AS what,
    concat('are ', coalesce(c.held, 0), ', by entries ', coalesce(b.held, 0), '; returned ', coalesce(c.returned, 0), ', by entries ',
        coalesce(b.returned, 0)) AS detail
FROM carried c
FULL JOIN booked b USING (tenant, meter, period_start)
WHERE coalesce(c.held, 0) <> coalesce(b.held, 0) OR (c.held IS NOT NULL AND c.returned <> coalesce(b.returned, 0))
UNION ALL
SELECT concat_ws(' ', 'holds carried from', tenant, meter, period_start AT TIME ZONE 'UTC'),
    concat('are ', held, ', by the balance ', coalesce(carried_out, 0))
FROM left_over
WHERE held <> coalesce(carried_out, 0)
UNION ALL
SELECT concat_ws(' ', 'closed period', tenant, meter, period_start AT TIME ZONE 'UTC'),
    concat(b.available, ' are available and ', b.reserved, ' held')
FROM period_closures c
JOIN balances b USING (tenant, meter, period_start)
WHERE tenant = ANY($1) AND c.is_final AND (b.available <> 0 OR b.reserved <> 0)
LIMIT $2
