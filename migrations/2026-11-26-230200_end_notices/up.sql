-- Whether the notices of a period are over: its last figures are known, and told. Those of periods that are closed by
-- now are.
ALTER TABLE quota_periods ADD COLUMN notices_ended boolean NOT NULL DEFAULT true;
ALTER TABLE quota_periods ALTER COLUMN notices_ended SET DEFAULT false;
UPDATE quota_periods q SET notices_ended = false
WHERE NOT EXISTS (
    SELECT FROM period_closures c WHERE (c.tenant, c.meter, c.period_start) = (q.tenant, q.meter, q.period_start)
);
UPDATE quota_notices n SET resolved_at = greatest(n.raised_at, n.period_end)
FROM quota_periods q
WHERE n.resolved_at IS NULL AND q.notices_ended
    AND (q.tenant, q.meter, q.period_start) = (n.tenant, n.meter, n.period_start);
CREATE INDEX quota_periods_with_notices ON quota_periods (tenant, meter, period_start) WHERE NOT notices_ended;
