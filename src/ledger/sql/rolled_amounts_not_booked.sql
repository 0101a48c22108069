-- Amounts that came over into a period: no more was unused than came over in all, and the rest was granted by the close
-- before or returned of the holds that it carried.
SELECT concat_ws(' ', 'rolled over into', r.tenant, r.meter, r.period_start AT TIME ZONE 'UTC') AS what,
    concat('are ', r.amount, ', ', r.rolled, ' of them unused before; came over ', coalesce(b.rolled_in, 0), ', granted ',
        coalesce(c.added, 0), ', returned at most ', coalesce(h.returned, 0)) AS detail
FROM (
    SELECT tenant, meter, period_start, sum(amount) AS amount, sum(rolled) AS rolled
    FROM rolled_amounts WHERE tenant = ANY($1)
    GROUP BY 1, 2, 3
) r
LEFT JOIN balances b USING (tenant, meter, period_start)
LEFT JOIN LATERAL (
    SELECT sum(c.added) AS added FROM period_closures c
    WHERE c.tenant = r.tenant AND c.meter = r.meter AND c.period_end = r.period_start
) c ON true
LEFT JOIN LATERAL (
    SELECT sum(h.returned) AS returned FROM carried_holds h
    WHERE h.tenant = r.tenant AND h.meter = r.meter AND h.next_start = r.period_start
) h ON true
WHERE r.rolled > coalesce(b.rolled_in, 0) OR r.amount - r.rolled > coalesce(c.added, 0) + coalesce(h.returned, 0)
LIMIT $2
