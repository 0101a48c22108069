-- By what balances say: the close itself goes by the closures. The period after one may have to be known: something
-- goes on to it, or it gets a recurring grant again.
SELECT b.tenant, b.meter, b.period_start, b.period_end, coalesce(q.max_rollover > 0 OR q.preserve_overage, false) OR k.keeps OR k.recurs AS may_go_on,
    coalesce(q.rollover_periods, 1::smallint) AS rollover_periods
FROM balances b
LEFT JOIN quota_periods q USING (tenant, meter, period_start)
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM rolled_amounts r
        WHERE r.tenant = b.tenant AND r.meter = b.meter AND r.period_start = b.period_start AND r.periods_left > 0
    ) OR EXISTS (
        SELECT FROM standing_grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.period_start = b.period_start AND g.expires_at > b.period_end
    ) OR EXISTS (
        SELECT FROM rolling_grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.period_start = b.period_start
    ) AS keeps, EXISTS (
        SELECT FROM grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.recurrence = 'period'
            AND g.effective_at < b.period_end AND g.expires_at > b.period_end
            AND (g.voided_at IS NULL OR g.voided_at > b.period_end)
    ) AS recurs
) k
WHERE NOT b.is_closed AND b.period_end <= $1
    AND ($2::timestamptz IS NULL OR (b.period_end, b.tenant, b.meter) > ($2, $3, $4))
ORDER BY b.period_end, b.tenant, b.meter
LIMIT $5
