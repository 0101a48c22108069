-- The tenant's quotas in the periods that contain this instant, what of them is consumed, and how many grants are
-- booked there or advanced, counted no further than this. What was consumed of carried holds, or adjusted, burns
-- nothing; what was repaid does.
SELECT b.meter, b.period_start, b.period_end, b.rolled_in, q.included,
    b.consumed - b.adjusted + b.repaid - least(b.consumed_of_carried, b.carried_in) AS consumed, g.grants
FROM balances b
JOIN quota_periods q USING (tenant, meter, period_start)
CROSS JOIN LATERAL (
    SELECT count(*) AS grants FROM (
        SELECT 1 FROM grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.effective_at >= b.period_start AND g.effective_at < b.period_end
        UNION ALL
        SELECT 1 FROM continued_grants c
        WHERE c.tenant = b.tenant AND c.meter = b.meter AND c.period_start = b.period_start
        UNION ALL
        SELECT 1 FROM grant_advances v
        WHERE v.tenant = b.tenant AND v.meter = b.meter AND v.period_start = b.period_start
        LIMIT $3
    ) counted
) g
WHERE b.tenant = $1 AND b.period_start <= $2 AND b.period_end > $2
ORDER BY b.meter
