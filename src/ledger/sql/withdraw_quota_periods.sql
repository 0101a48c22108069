-- Their quotas were gone before they began: they are not open any more. The gate may have them with the period before,
-- under the later one's version, and ignores one that is not higher.
WITH gone AS (
    DELETE FROM quota_periods q
    USING unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
    WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_start = w.period_start
    RETURNING q.tenant, q.meter, q.period_start, q.version
)
UPDATE quota_periods q SET version = greatest(q.version, g.version + 1)
FROM gone g
WHERE q.tenant = g.tenant AND q.meter = g.meter AND q.period_end = g.period_start
