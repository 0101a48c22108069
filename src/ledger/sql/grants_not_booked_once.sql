SELECT concat_ws(' ', 'grant', g.id, 'of', g.tenant, g.meter) AS what,
    concat('grants ', g.amount, ', its entries ', coalesce(e.amount, 0)) AS detail
FROM grants g
LEFT JOIN LATERAL (
    SELECT sum(amount) AS amount FROM entries e
    WHERE e.tenant = g.tenant AND e.happened_at = g.effective_at AND e.operation_id = g.id AND e.meter = g.meter
        AND e.period_start = g.period_start AND e.class = 'grant' AND e.credit = 'granted' AND e.debit = 'available'
) e ON true
WHERE g.tenant = ANY($1) AND g.period_start IS NOT NULL AND e.amount IS DISTINCT FROM g.amount
LIMIT $2
