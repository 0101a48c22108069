-- Grants that end inside the open period in which they stand, and of which no cut is made or wanted: nobody would ever
-- end them, and their period would never be closed. The end of a voided one is wanted once the gate has its bound.
SELECT concat_ws(' ', 'grant', g.id, 'of', g.tenant, g.meter) AS what,
    concat('ends at ', g.expires_at AT TIME ZONE 'UTC', ', where no cut is made or wanted') AS detail
FROM grants g
LEFT JOIN LATERAL (
    SELECT max(c.period_start) AS period_start FROM continued_grants c WHERE c.tenant = g.tenant AND c.grant_id = g.id
) l ON true
JOIN quota_periods q ON q.tenant = g.tenant AND q.meter = g.meter AND q.period_start = coalesce(l.period_start, g.period_start)
LEFT JOIN period_closures k ON k.tenant = q.tenant AND k.meter = q.meter AND k.period_start = q.period_start
WHERE g.tenant = ANY($1) AND g.period_start IS NOT NULL AND g.settled_at IS NULL AND g.voided_at IS NULL
    AND g.expires_at < q.period_end AND k.tenant IS NULL
    AND NOT EXISTS (SELECT FROM cuts e WHERE e.tenant = g.tenant AND e.grant_id = g.id AND e.is_end)
    AND NOT EXISTS (SELECT FROM due_cuts d WHERE d.tenant = g.tenant AND d.grant_id = g.id AND d.is_end)
LIMIT $2
