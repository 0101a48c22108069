-- Whether the period before this one is not closed, and its close may change what has burnt here: by what rolls over,
-- by a grant that goes on, by overage to pay, or because holds of it were consumed here. Those burn nothing of this
-- period once they are carried in. A grant that goes on may come from further back, over periods that are not closed.
SELECT EXISTS (
    SELECT FROM quota_periods p
    LEFT JOIN period_closures c USING (tenant, meter, period_start)
    WHERE p.tenant = $1 AND p.meter = $2 AND p.period_end = $3 AND c.tenant IS NULL
        AND (p.max_rollover > 0 OR p.preserve_overage OR EXISTS (
            SELECT FROM rolled_amounts r
            WHERE r.tenant = p.tenant AND r.meter = p.meter AND r.period_start = p.period_start AND r.periods_left > 0
        ) OR EXISTS (
            SELECT FROM rolling_grants g
            WHERE g.tenant = p.tenant AND g.meter = p.meter AND g.period_start = p.period_start
        ))
) OR EXISTS (
    SELECT FROM (
        SELECT tenant, meter, period_start FROM balances
        WHERE tenant = $1 AND meter = $2 AND period_start < $3
        ORDER BY period_start DESC
        LIMIT 1
    ) before
    LEFT JOIN period_closures c USING (tenant, meter, period_start)
    JOIN balances b ON b.tenant = $1 AND b.meter = $2 AND b.period_start = $3
    WHERE c.tenant IS NULL AND b.consumed_of_carried > 0
) OR EXISTS (
    SELECT FROM standing_grants g
    LEFT JOIN period_closures c USING (tenant, meter, period_start)
    WHERE g.tenant = $1 AND g.meter = $2 AND g.period_start < $3 AND g.expires_at > $3
        AND (g.voided_at IS NULL OR g.voided_at >= $3) AND c.tenant IS NULL
) AS may_go_on
