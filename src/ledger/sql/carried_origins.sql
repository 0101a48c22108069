-- For periods in which carried holds stand: the last close that carried some there, and whether the period before is
-- not closed yet. What no close carried there was held there from the beginning: all of it is available again.
SELECT w.tenant, w.meter, w.period_start AS next_start,
    coalesce(before.is_open, false) AS waits,
    coalesce(h.charged, 999999999999999999) AS charged,
    coalesce(h.held_after, 0) AS held_after, coalesce(h.held_of_included, 0) AS held_of_included,
    coalesce(h.unused, 0) AS unused, coalesce(h.max_rollover, 0) AS max_rollover, coalesce(h.returned, 0) AS returned,
    coalesce(h.min_rollover, 0) AS min_rollover, coalesce(h.has_parts, false) AS has_parts, h.period_start, h.rolls_until,
    h.rolls_periods_left
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
LEFT JOIN LATERAL (
    SELECT c.tenant IS NULL AS is_open
    FROM (
        SELECT e.tenant, e.meter, e.period_start FROM balances e
        WHERE e.tenant = w.tenant AND e.meter = w.meter AND e.period_start < w.period_start
        ORDER BY e.period_start DESC
        LIMIT 1
    ) e
    LEFT JOIN period_closures c USING (tenant, meter, period_start)
) before ON true
LEFT JOIN LATERAL (
    SELECT * FROM carried_holds h
    WHERE h.tenant = w.tenant AND h.meter = w.meter AND h.next_start = w.period_start
    ORDER BY h.period_start DESC
    LIMIT 1
) h ON true
