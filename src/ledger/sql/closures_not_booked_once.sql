SELECT concat_ws(' ', 'period', tenant, meter, period_start AT TIME ZONE 'UTC') AS what,
    concat(
        CASE WHEN c.tenant IS NULL THEN 'not closed' ELSE concat('closed with ', c.lapsed, ' lapsed and ', c.overage, ' overage') END,
        ', its entries ', coalesce(e.lapsed, 0), ' and ', coalesce(e.overage, 0), ' in ', coalesce(e.closes, 0), ' closes'
    ) AS detail
FROM (SELECT * FROM period_closures WHERE tenant = ANY($1)) c
FULL JOIN (
    SELECT tenant, meter, period_start, count(DISTINCT (operation_id, step)) AS closes,
        coalesce(sum(amount) FILTER (WHERE debit = 'lapsed'), 0) AS lapsed,
        coalesce(sum(amount) FILTER (WHERE credit = 'overage'), 0) AS overage
    FROM entries
    WHERE tenant = ANY($1) AND class = 'period'
    GROUP BY 1, 2, 3
) e USING (tenant, meter, period_start)
WHERE c.tenant IS NULL OR c.lapsed <> coalesce(e.lapsed, 0) OR c.overage <> coalesce(e.overage, 0) OR e.closes > 1
LIMIT $2
