-- Whether the period before this one is not closed, and its close may bring something here: what rolls over, or overage
-- to pay.
SELECT EXISTS (
    SELECT FROM quota_periods p
    LEFT JOIN period_closures c USING (tenant, meter, period_start)
    WHERE p.tenant = $1 AND p.meter = $2 AND p.period_end = $3 AND c.tenant IS NULL
        AND (p.max_rollover > 0 OR p.preserve_overage OR EXISTS (
            SELECT FROM rolled_amounts r
            WHERE r.tenant = p.tenant AND r.meter = p.meter AND r.period_start = p.period_start AND r.periods_left > 0
        ))
) AS may_go_on
