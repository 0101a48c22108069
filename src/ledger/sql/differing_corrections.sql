-- Sums of corrections beside their entries, for periods in which all are summed up: older versions did not.
SELECT concat_ws(' ', 'corrections in', tenant, meter, booked_in AT TIME ZONE 'UTC') AS what,
    concat('are ', coalesce(c.consumed, 0), ', by entries ', coalesce(e.consumed, 0)) AS detail
FROM (
    SELECT tenant, meter, booked_in, sum(consumed) AS consumed FROM corrections WHERE tenant = ANY($1) GROUP BY 1, 2, 3
) c
FULL JOIN (
    SELECT tenant, meter, period_start AS booked_in, sum(amount) AS consumed
    FROM entries
    WHERE tenant = ANY($1) AND class = 'correction' AND credit = 'available' AND debit = 'consumed'
        AND booked_at >= (SELECT run_on FROM __diesel_schema_migrations WHERE version = '20261124120000')
    GROUP BY 1, 2, 3
) e USING (tenant, meter, booked_in)
WHERE coalesce(c.consumed, 0) <> coalesce(e.consumed, 0)
LIMIT $2
