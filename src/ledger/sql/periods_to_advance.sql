-- Of one tenant, or of all that ended lately: those that ended longer ago are closed at any moment.
SELECT p.tenant, p.meter, p.period_start, p.period_end, true AS may_go_on, 1::smallint AS rollover_periods
FROM periods_to_advance p
WHERE p.period_end <= $2 AND (p.tenant = $1 OR $1::text IS NULL AND p.period_end > $2 - interval '1 day')
ORDER BY p.period_end, p.tenant, p.meter
LIMIT $3
