-- Claims the delivery of a webhook that has been due for the longest, with its notice and the thresholds of those of
-- the quota that ended with it. It is due by the service's time and claimed by the database's, so that no two instances
-- send it at once.
WITH due AS MATERIALIZED (
    SELECT id FROM webhook_deliveries
    WHERE webhook = $1 AND next_attempt_at <= $2 AND (claimed_until IS NULL OR claimed_until <= clock_timestamp())
    ORDER BY next_attempt_at, id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE webhook_deliveries d SET claim = d.claim + 1, claimed_until = clock_timestamp() + $3 * interval '1 millisecond'
FROM due, quota_notices n
WHERE d.id = due.id AND (n.tenant, n.meter, n.period_start, n.percent) = (d.tenant, d.meter, d.period_start, d.percent)
RETURNING d.id, d.event, d.claim, d.attempts, d.retried_until, n.tenant, n.meter, n.period_start, n.period_end, n.percent,
    n.consumed, n.allowance, n.runs_out_at, n.raised_at, n.resolved_at,
    ARRAY(
        SELECT o.percent FROM quota_notices o
        WHERE (o.tenant, o.meter, o.period_start, o.resolved_at) = (n.tenant, n.meter, n.period_start, n.resolved_at)
            AND o.raised_at < o.period_end
        ORDER BY o.percent
    ) AS ended_together
