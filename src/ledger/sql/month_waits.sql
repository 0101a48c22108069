-- Why these entries may not leave yet: a period of theirs is open or not billed, or a reservation may still change.
WITH periods AS (
    SELECT DISTINCT tenant, meter, period_start FROM entries
    WHERE happened_at >= $1 AND happened_at < $2 AND meter NOT LIKE 'money:%'
)
SELECT why FROM (
    SELECT concat_ws(' ', 'period', tenant, meter, period_start AT TIME ZONE 'UTC', 'is not closed') AS why
    FROM periods LEFT JOIN period_closures c USING (tenant, meter, period_start)
    WHERE c.period_end IS NULL
    UNION ALL
    SELECT concat_ws(' ', 'period', tenant, meter, period_start AT TIME ZONE 'UTC', 'is not billed')
    FROM periods JOIN balances b USING (tenant, meter, period_start) JOIN billing i USING (tenant)
    WHERE b.period_end > i.billed_until
    UNION ALL
    SELECT concat_ws(' ', 'reservation', r.id, 'of', r.tenant, 'is not archived')
    FROM reservations r
    WHERE EXISTS (
        SELECT FROM entries e
        WHERE e.tenant = r.tenant AND e.operation_id = r.id AND e.happened_at >= $1 AND e.happened_at < $2
    )
) w
LIMIT 1
