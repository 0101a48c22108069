SELECT concat_ws(' ', 'grant', g.id, 'of', g.tenant, g.meter) AS what,
    concat('gave back ', g.settled_amount, ', its entries ', coalesce(e.amount, 0)) AS detail
FROM grants g
LEFT JOIN LATERAL (
    SELECT max(c.period_start) AS period_start FROM continued_grants c WHERE c.tenant = g.tenant AND c.grant_id = g.id
) l ON true
LEFT JOIN LATERAL (
    SELECT sum(amount) AS amount FROM entries e
    WHERE e.tenant = g.tenant AND e.happened_at = g.settled_at AND e.operation_id = g.id AND e.meter = g.meter
        AND e.period_start = coalesce(l.period_start, g.period_start) AND e.class = 'grant' AND e.credit = 'available'
        AND e.debit = CASE WHEN g.voided_at IS NULL THEN 'lapsed' ELSE 'voided' END::account
) e ON true
WHERE g.tenant = ANY($1) AND g.period_start IS NOT NULL AND coalesce(e.amount, 0) <> coalesce(g.settled_amount, 0)
UNION ALL
SELECT concat_ws(' ', 'lowered quota', q.id, 'of', q.tenant, q.meter),
    concat('voided ', coalesce(-q.changed, 0), ', its entries ', coalesce(e.amount, 0))
FROM quota_changes q
LEFT JOIN LATERAL (
    SELECT sum(amount) AS amount FROM entries e
    WHERE e.tenant = q.tenant AND e.happened_at = q.asked_at AND e.operation_id = q.id AND e.meter = q.meter
        AND e.period_start = q.period_start AND e.class = 'grant' AND e.credit = 'available' AND e.debit = 'voided'
) e ON true
WHERE q.tenant = ANY($1) AND q.amount < 0 AND coalesce(e.amount, 0) <> coalesce(-q.changed, 0)
LIMIT $2
