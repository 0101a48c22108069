-- Grants that begin later are cut where they begin and end, also where no job has booked them by then. The period in
-- which they stand is set when they are booked.
INSERT INTO due_cuts (partition, tenant, grant_id, is_end, meter, period_start, due_at, epoch, sequence)
SELECT t.partition, g.tenant, g.id, e.is_end, g.meter, g.effective_at,
    CASE WHEN e.is_end THEN g.expires_at ELSE g.effective_at END, 0, 0
FROM grants g
JOIN tenants t ON t.id = g.tenant
CROSS JOIN (VALUES (false), (true)) AS e (is_end)
WHERE g.period_start IS NULL AND g.settled_at IS NULL AND g.repeats IS NULL
ON CONFLICT DO NOTHING;
