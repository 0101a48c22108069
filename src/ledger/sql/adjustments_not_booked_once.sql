-- Adjustments of usage beside their entries, of which each has one once it is booked, flagged where it corrects a
-- carried hold; and the grants of those of the allowance, and the entries of those of money. What the gate has
-- corrected of an open period is an operation of its own, until its month has left.
SELECT concat_ws(' ', 'adjustment', id, 'of', tenant) AS what,
    concat(
        CASE WHEN a.state IS NULL THEN 'does not exist' ELSE concat('is ', a.state, ' with ', coalesce(a.booked_amount, 0)) END,
        ', by ', coalesce(e.entries, 0), ' entries ', coalesce(e.amount, 0)
    ) AS detail
FROM (SELECT * FROM adjustments WHERE tenant = ANY($1) AND effect = 'usage' AND gate_period IS NULL) a
FULL JOIN (
    SELECT tenant, operation_id AS id, meter, count(*) AS entries, min(period_start) AS booked_in, min(happened_at) AS happened_at,
        sum(CASE WHEN credit = 'adjusted' THEN amount ELSE -amount END) AS amount, bool_or(carried) AS carried
    FROM entries
    WHERE tenant = ANY($1) AND class = 'correction' AND 'adjusted' IN (credit, debit)
    GROUP BY 1, 2, 3
) e USING (tenant, id, meter)
WHERE a.state IS NULL OR coalesce(a.booked_amount, 0) <> coalesce(e.amount, 0)
    OR CASE WHEN a.state = 'booked' THEN
        e.entries IS DISTINCT FROM 1 OR a.booked_amount <> a.amount OR a.booked_in <> e.booked_in OR a.happened_at <> e.happened_at
        OR e.carried <> (a.carried_hold IS NOT NULL)
    ELSE e.entries IS NOT NULL END
UNION ALL
SELECT concat_ws(' ', 'adjustment', a.id, 'of', a.tenant), concat('there is no grant ', n.grant_id)
FROM adjustments a
JOIN adjustment_grants n ON n.tenant = a.tenant AND n.adjustment = a.id
LEFT JOIN grants g ON g.tenant = n.tenant AND g.id = n.grant_id
WHERE a.tenant = ANY($1) AND a.state = 'booked' AND g.id IS NULL
UNION ALL
SELECT concat_ws(' ', 'adjustment', a.id, 'of', a.tenant),
    concat('is ', a.state, ' with ', coalesce(a.booked_amount, 0), ' ', a.currency, ', by ', e.entries, ' entries ', e.amount)
FROM adjustments a
CROSS JOIN LATERAL (
    SELECT count(*) AS entries, coalesce(sum(CASE WHEN debit = 'receivable' THEN amount ELSE -amount END), 0) AS amount
    FROM entries e
    WHERE e.tenant = a.tenant AND e.happened_at = a.happened_at AND e.operation_id = a.id AND e.class = 'correction'
        AND e.meter = 'money:' || a.currency AND e.period_start = a.booked_in
) e
WHERE a.tenant = ANY($1) AND a.effect = 'money' AND (
    e.amount <> coalesce(a.booked_amount, 0) OR e.entries <> CASE WHEN a.state = 'booked' THEN 1 ELSE 0 END OR a.booked_amount <> a.amount)
UNION ALL
SELECT concat_ws(' ', 'adjustment', a.id, 'of', a.tenant),
    concat('is booked with ', a.booked_amount, ', by ', e.entries, ' entries ', coalesce(e.amount, 0))
FROM adjustments a
CROSS JOIN LATERAL (
    SELECT count(*) AS entries, sum(CASE WHEN debit = 'consumed' THEN amount ELSE -amount END) AS amount FROM entries e
    WHERE e.tenant = a.tenant AND e.happened_at = a.happened_at AND e.operation_id = a.gate_operation AND e.meter = a.meter
        AND e.period_start = a.gate_period AND e.corrected AND 'consumed' IN (credit, debit)
) e
CROSS JOIN (SELECT max((month + interval '1 month')::timestamp AT TIME ZONE 'UTC') AS from_at FROM openings) held
WHERE a.tenant = ANY($1) AND a.gate_period IS NOT NULL AND a.state = 'booked' AND (held.from_at IS NULL OR a.happened_at >= held.from_at)
    AND (e.entries <> 1 OR e.amount IS DISTINCT FROM a.booked_amount OR a.booked_amount <> a.amount)
UNION ALL
SELECT concat_ws(' ', 'operation', e.operation_id, 'of', e.tenant),
    concat('corrects ', e.amount, ' of ', e.meter, ', which no adjustment has the gate do')
FROM entries e
WHERE e.tenant = ANY($1) AND e.corrected AND NOT EXISTS (
    SELECT FROM adjustments a
    WHERE a.tenant = e.tenant AND a.gate_operation = e.operation_id AND a.gate_period IS NOT NULL AND a.state IN ('approved', 'booked')
)
LIMIT $2
