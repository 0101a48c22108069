-- A page of the closed periods of quotas of these tenants, as their closes found them, and when the next one ends that
-- was open by then. Earlier versions closed by other rules, and let lapse what would have rolled over of a recurring
-- grant that was voided between the end of its period and the close.
SELECT c.tenant, c.meter, c.period_start, c.period_end, c.lapsed, c.rolled, c.added, b.rolled_in, q.included, q.max_rollover, q.min_rollover, q.reroll,
    b.consumed - b.adjusted + b.repaid - least(b.consumed_of_carried, b.carried_in) AS consumed,
    b.reserved_beside_gate + coalesce(h.held, 0) AS reserved_of_carried, CASE WHEN coalesce(h.charged, 0) = 0 THEN coalesce(h.held, 0) END AS held,
    n.period_end AS next_end
FROM period_closures c
JOIN quota_periods q USING (tenant, meter, period_start)
JOIN balances b USING (tenant, meter, period_start)
LEFT JOIN carried_holds h USING (tenant, meter, period_start)
CROSS JOIN LATERAL (
    SELECT min(e.booked_at) AS booked_at FROM entries e
    WHERE e.tenant = c.tenant AND e.happened_at = c.closed_at AND e.meter = c.meter AND e.class = 'period' AND NOT e.carried
        AND e.period_start IN (c.period_start, c.period_end)
) e
LEFT JOIN quota_periods n ON n.tenant = c.tenant AND n.meter = c.meter AND n.period_start = c.period_end AND n.opened_at <= e.booked_at
WHERE c.tenant = ANY($1) AND c.is_final AND ($2::text IS NULL OR (c.tenant, c.meter, c.period_start) > ($2, $3, $4::timestamptz))
    AND e.booked_at >= (SELECT run_on FROM __diesel_schema_migrations WHERE version = '20261127300000')
    AND (e.booked_at >= (SELECT run_on FROM __diesel_schema_migrations WHERE version = '20261127910100') OR NOT EXISTS (
        SELECT FROM grants g
        WHERE g.tenant = c.tenant AND g.meter = c.meter AND g.period_start = c.period_start AND g.recurrence = 'period'
            AND g.max_rollover > 0 AND NOT g.goes_on AND g.settled_amount IS NULL AND g.voided_at >= c.period_end
            AND g.voided_at <= e.booked_at
    ))
ORDER BY c.tenant, c.meter, c.period_start
LIMIT $5
