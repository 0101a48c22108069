-- Up to when tenants are billed beside the periods that were: each begins no later than the one before has ended, and
-- has the documents that were numbered since. A period that an instance of an earlier version has billed, or that
-- stands for all before an upgrade, says less: its documents are of some period up to it. So are those of a tenant's
-- first period: an earlier tenant of its name may have left some.
WITH noted AS (
    SELECT tenant, period_start, period_end, last_number, lag(period_end) OVER w AS ended_before
    FROM billed_periods
    WHERE tenant = ANY($1)
    WINDOW w AS (PARTITION BY tenant ORDER BY period_end)
), whole AS (
    SELECT tenant, min(period_start) FILTER (WHERE ended_before IS NULL) AS begun_at, max(period_end) AS billed_until,
        max(last_number) AS last_number, (array_agg(last_number ORDER BY period_end DESC))[1] AS newest
    FROM noted
    GROUP BY tenant
)
SELECT concat_ws(' ', 'billing of', tenant) AS what,
    concat(
        'is from ', b.begun_at AT TIME ZONE 'UTC', ' to ', b.billed_until AT TIME ZONE 'UTC',
        ', by its periods from ', w.begun_at AT TIME ZONE 'UTC', ' to ', w.billed_until AT TIME ZONE 'UTC'
    ) AS detail
FROM (SELECT * FROM billing WHERE tenant = ANY($1) AND begun_at IS NOT NULL) b
FULL JOIN whole w USING (tenant)
WHERE b.begun_at IS DISTINCT FROM w.begun_at OR b.billed_until IS DISTINCT FROM w.billed_until
UNION ALL
SELECT concat_ws(' ', 'billing of', tenant, period_start AT TIME ZONE 'UTC'),
    concat('the one before ended at ', ended_before AT TIME ZONE 'UTC', ': nobody has billed what lies between')
FROM noted
WHERE period_start > ended_before
UNION ALL
SELECT concat_ws(' ', 'billing of', w.tenant), concat('has issued ', w.last_number, ' documents, of which ', s.last_number, ' are kept')
FROM whole w
CROSS JOIN LATERAL (SELECT coalesce(max(s.number), 0) AS last_number FROM statements s WHERE s.tenant = w.tenant) s
WHERE s.last_number < w.last_number
UNION ALL
SELECT concat_ws(' ', 'statement', s.number, 'of', s.tenant),
    concat('is in the bill of ', s.billed_in AT TIME ZONE 'UTC', ', by its number in that of ', p.period_start AT TIME ZONE 'UTC')
FROM statements s
JOIN whole w ON w.tenant = s.tenant
-- Looked up one by one: the index has a tenant's few periods in order.
LEFT JOIN LATERAL (
    SELECT p.period_start, p.period_end FROM billed_periods p
    WHERE p.tenant = s.tenant AND p.last_number >= s.number
    ORDER BY p.period_end
    LIMIT 1
) p ON true
WHERE (p.period_end IS NULL AND w.newest IS NOT NULL) OR s.billed_in >= p.period_end OR s.billed_in < p.period_start AND coalesce((
    SELECT b.last_number IS NOT NULL FROM billed_periods b
    WHERE b.tenant = s.tenant AND b.period_end < p.period_end
    ORDER BY b.period_end DESC
    LIMIT 1
), false)
LIMIT $2
