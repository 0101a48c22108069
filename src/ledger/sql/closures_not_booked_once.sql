WITH closed AS (
    SELECT tenant, meter, period_start, c.period_end, c.lapsed, c.rolled, c.added, c.paid_by_next, c.overage, e.closes,
        coalesce(e.lapsed, 0) AS lapsed_booked, coalesce(e.rolled, 0) AS rolled_booked, coalesce(e.overage, 0) AS overage_booked
    FROM (SELECT * FROM period_closures WHERE tenant = ANY($1)) c
    FULL JOIN (
        SELECT tenant, meter, period_start, count(DISTINCT (operation_id, step)) AS closes,
            sum(amount) FILTER (WHERE debit = 'lapsed') AS lapsed,
            sum(amount) FILTER (WHERE debit = 'rolled_out') AS rolled,
            sum(amount) FILTER (WHERE credit = 'overage') AS overage
        FROM entries
        WHERE tenant = ANY($1) AND class = 'period' AND NOT carried
            AND (debit IN ('lapsed', 'rolled_out', 'carried_out') OR credit = 'overage')
        GROUP BY 1, 2, 3
    ) e USING (tenant, meter, period_start)
)
SELECT concat_ws(' ', 'period', coalesce(c.tenant, n.tenant), coalesce(c.meter, n.meter),
        coalesce(c.period_start, n.period_start) AT TIME ZONE 'UTC') AS what,
    concat(
        CASE WHEN c.period_end IS NULL THEN 'not closed' ELSE concat(
            'closed with ', c.lapsed, ' lapsed, ', c.rolled, ' rolled over and ', c.overage, ' overage') END,
        ', its entries ', c.lapsed_booked, ', ', c.rolled_booked, ' and ', c.overage_booked, ' in ', coalesce(c.closes, 0),
        ' closes; the next period got ', coalesce(n.rolled, 0),
        ' and ', coalesce(n.added, 0), ' of ', coalesce(c.added, 0), ' more, and repaid ', coalesce(n.repaid, 0), ' of ', coalesce(c.paid_by_next, 0)
    ) AS detail
FROM closed c
FULL JOIN (
    SELECT tenant, meter, period_start,
        coalesce(sum(amount) FILTER (WHERE credit = 'rolled_in'), 0) AS rolled,
        coalesce(sum(amount) FILTER (WHERE credit = 'granted'), 0) AS added,
        coalesce(sum(amount) FILTER (WHERE debit = 'repaid'), 0) AS repaid
    FROM entries
    WHERE tenant = ANY($1) AND class = 'period' AND (credit IN ('rolled_in', 'granted') OR debit = 'repaid')
    GROUP BY 1, 2, 3
) n ON n.tenant = c.tenant AND n.meter = c.meter AND n.period_start = c.period_end
WHERE c.period_end IS NULL OR c.lapsed <> c.lapsed_booked OR c.overage <> c.overage_booked OR c.closes > 1
    OR c.rolled <> c.rolled_booked OR c.rolled <> coalesce(n.rolled, 0)
    OR c.added <> coalesce(n.added, 0) OR c.paid_by_next <> coalesce(n.repaid, 0)
UNION ALL
SELECT concat_ws(' ', 'period', b.tenant, b.meter, b.period_start AT TIME ZONE 'UTC'),
    CASE WHEN b.is_closed THEN 'is marked as closed, and is not' ELSE 'is closed, and is not marked so' END
FROM (SELECT * FROM balances WHERE tenant = ANY($1)) b
LEFT JOIN period_closures k USING (tenant, meter, period_start)
WHERE b.is_closed <> (k.tenant IS NOT NULL)
LIMIT $2
