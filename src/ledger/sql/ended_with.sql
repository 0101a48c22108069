-- The grants that have ended at the end cut of this one, in the same period, and of which what is unburnt is not
-- booked: itself first.
SELECT g.id, coalesce(g.voided_at, g.expires_at) AS ended_at
FROM cuts c
JOIN cuts m USING (tenant, meter, period_start, epoch, sequence)
JOIN grants g ON g.tenant = m.tenant AND g.id = m.grant_id AND g.settled_at IS NULL
WHERE c.tenant = $1 AND c.grant_id = $2 AND c.is_end AND m.is_end AND NOT m.is_settled
ORDER BY g.id <> $2, g.id
LIMIT $3
