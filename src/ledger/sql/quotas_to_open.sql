-- Quotas with a recurring grant in force of which no period is open at this instant, although their tenants are not
-- archived. A grant's first period is opened as it begins; one that could not begin then recurs all the same. A period
-- that is closed while it is on, by a clock that was wrong, is not opened any more.
SELECT DISTINCT g.tenant, g.meter
FROM grants g
JOIN tenants t ON t.id = g.tenant AND NOT t.archived
WHERE g.recurrence = 'period' AND g.voided_at IS NULL AND g.effective_at <= $1 AND g.expires_at > $1
    AND (g.period_start IS NOT NULL OR g.settled_at IS NOT NULL)
    AND ($2::text IS NULL OR (g.tenant, g.meter) > ($2, $3))
    AND NOT EXISTS (
        SELECT FROM quota_periods q
        WHERE q.tenant = g.tenant AND q.meter = g.meter AND q.period_start <= $1 AND q.period_end > $1
    )
    AND NOT EXISTS (
        SELECT FROM period_closures k
        WHERE k.tenant = g.tenant AND k.meter = g.meter AND k.period_start <= $1 AND k.period_end > $1
    )
ORDER BY g.tenant, g.meter
LIMIT $4
