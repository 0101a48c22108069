SELECT concat_ws(' ', 'usage', tenant, meter, hour_at AT TIME ZONE 'UTC', operation, 'subject', subject) AS what,
    concat(
        'is ', concat_ws('/', u.consumed, u.count, u.excess, u.late, u.corrections),
        ', by entries ', concat_ws('/', e.consumed, e.count, e.excess, e.late, e.corrections)
    ) AS detail
FROM (SELECT * FROM usage_hourly WHERE tenant = ANY($1)) u
FULL JOIN (SELECT * FROM usage_by_entries WHERE tenant = ANY($1)) e USING (tenant, meter, hour_at, operation, subject)
WHERE (coalesce(u.consumed, 0), coalesce(u.count, 0), coalesce(u.excess, 0), coalesce(u.late, 0), coalesce(u.corrections, 0))
    <> (coalesce(e.consumed, 0), coalesce(e.count, 0), coalesce(e.excess, 0), coalesce(e.late, 0), coalesce(e.corrections, 0))
LIMIT $2
