-- Sums of corrections beside their entries, for periods in which all are summed up: older versions did not. What
-- adjustments correct is apart. And what of carried holds is corrected, beside the adjustments that say so. The period
-- that is corrected is the one around the hour of the late fact, or the one that the adjustment names.
SELECT concat_ws(' ', 'corrections in', tenant, meter, booked_in AT TIME ZONE 'UTC') AS what,
    concat(
        'are ', coalesce(c.consumed, 0), ' and ', coalesce(c.adjusted, 0), ' adjusted',
        ', by entries ', coalesce(e.consumed, 0), ' and ', coalesce(e.adjusted, 0)
    ) AS detail
FROM (
    SELECT tenant, meter, booked_in, sum(consumed) AS consumed, sum(adjusted) AS adjusted
    FROM corrections WHERE tenant = ANY($1) GROUP BY 1, 2, 3
) c
FULL JOIN (
    SELECT tenant, meter, period_start AS booked_in,
        sum(amount) FILTER (WHERE credit = 'available') AS consumed,
        sum(CASE WHEN credit = 'adjusted' THEN amount ELSE -amount END) FILTER (WHERE credit <> 'available') AS adjusted
    FROM entries
    WHERE tenant = ANY($1) AND class = 'correction'
        AND ((credit = 'available' AND debit = 'consumed') OR 'adjusted' IN (credit, debit))
        AND booked_at >= (SELECT run_on FROM __diesel_schema_migrations WHERE version = '20261124120000')
    GROUP BY 1, 2, 3
) e USING (tenant, meter, booked_in)
WHERE coalesce(c.consumed, 0) <> coalesce(e.consumed, 0) OR coalesce(c.adjusted, 0) <> coalesce(e.adjusted, 0)
UNION ALL
SELECT concat_ws(' ', 'corrections of carried holds in', tenant, meter, period_start AT TIME ZONE 'UTC', 'booked in', booked_in AT TIME ZONE 'UTC'),
    concat(
        'are ', coalesce(c.adjusted, 0), ' adjusted, ', coalesce(c.of_held, 0), ' of it held',
        ', by adjustments ', coalesce(a.adjusted, 0), ' and ', coalesce(a.of_held, 0)
    )
FROM (
    SELECT tenant, meter, period_start, booked_in, CASE WHEN period_start = booked_in THEN adjusted END AS adjusted, of_held
    FROM corrections WHERE tenant = ANY($1) AND (period_start = booked_in OR of_held <> 0)
) c
FULL JOIN (
    SELECT tenant, meter, period_start, booked_in, sum(booked_amount) AS adjusted, sum(of_held) AS of_held
    FROM adjustments WHERE tenant = ANY($1) AND carried_hold IS NOT NULL AND state = 'booked'
    GROUP BY 1, 2, 3, 4
) a USING (tenant, meter, period_start, booked_in)
WHERE coalesce(c.of_held, 0) <> coalesce(a.of_held, 0)
    OR (period_start = booked_in AND coalesce(c.adjusted, 0) <> coalesce(a.adjusted, 0))
UNION ALL
SELECT concat_ws(' ', 'corrections of', tenant, meter, period_start AT TIME ZONE 'UTC', 'booked in', booked_in AT TIME ZONE 'UTC'),
    concat('are ', coalesce(c.adjusted, 0), ' adjusted, by adjustments ', coalesce(a.adjusted, 0))
FROM (SELECT * FROM corrections WHERE tenant = ANY($1)) c
FULL JOIN (
    SELECT tenant, meter, period_start, booked_in, sum(booked_amount) AS adjusted
    FROM adjustments WHERE tenant = ANY($1) AND effect = 'usage' AND state = 'booked' AND gate_period IS NULL
    GROUP BY 1, 2, 3, 4
) a USING (tenant, meter, period_start, booked_in)
WHERE coalesce(c.adjusted, 0) <> coalesce(a.adjusted, 0)
UNION ALL
SELECT concat_ws(' ', 'corrections of', tenant, meter, period_start AT TIME ZONE 'UTC', 'booked in', booked_in AT TIME ZONE 'UTC'),
    concat('are ', coalesce(c.consumed, 0), ', by the hours of their entries ', coalesce(e.consumed, 0))
FROM (SELECT * FROM corrections WHERE tenant = ANY($1)) c
FULL JOIN (
    SELECT h.tenant, h.meter, p.period_start, h.booked_in, sum(h.consumed) AS consumed
    FROM (
        SELECT tenant, meter, period_start AS booked_in, hour_at, sum(amount) AS consumed
        FROM entries
        WHERE tenant = ANY($1) AND class = 'correction' AND credit = 'available' AND debit = 'consumed'
            AND booked_at >= (SELECT run_on FROM __diesel_schema_migrations WHERE version = '20261124120000')
        GROUP BY 1, 2, 3, 4
    ) h
    -- All periods of a tenant begin at the same instants: the last one of which anything is known.
    CROSS JOIN LATERAL (
        SELECT greatest(
            (SELECT max(b.period_start) FROM balances b WHERE b.tenant = h.tenant AND b.period_start <= h.hour_at),
            (SELECT max(l.period_start) FROM corrections l WHERE l.tenant = h.tenant AND l.period_start <= h.hour_at)
        ) AS period_start
    ) p
    GROUP BY 1, 2, 3, 4
) e USING (tenant, meter, period_start, booked_in)
WHERE coalesce(c.consumed, 0) <> coalesce(e.consumed, 0)
LIMIT $2
