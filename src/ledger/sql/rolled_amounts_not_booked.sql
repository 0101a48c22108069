-- Amounts that came over into a period: no more was unused than came over in all, exactly that where grants came over
-- too, and the rest was granted by the close before or returned of the holds that it carried. And grants that go on:
-- with no more than they had in the period before, all that has returned to them, and what is missing to their least.
SELECT concat_ws(' ', 'rolled over into', r.tenant, r.meter, r.period_start AT TIME ZONE 'UTC') AS what,
    concat('are ', r.amount, ', ', r.rolled, ' of them unused before; came over ', coalesce(b.rolled_in, 0), ', granted ',
        coalesce(c.added, 0), ', returned at most ', coalesce(h.returned, 0)) AS detail
FROM (
    SELECT tenant, meter, period_start, sum(amount) AS amount, sum(rolled) AS rolled, bool_or(is_of_grant) AS is_all
    FROM (
        SELECT tenant, meter, period_start, amount, rolled, false AS is_of_grant FROM rolled_amounts WHERE tenant = ANY($1)
        UNION ALL
        SELECT tenant, meter, period_start, amount, rolled, true FROM continued_grants WHERE tenant = ANY($1)
    ) a
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
WHERE r.rolled > coalesce(b.rolled_in, 0) OR r.is_all AND r.rolled < coalesce(b.rolled_in, 0)
    OR r.amount - r.rolled > coalesce(c.added, 0) + coalesce(h.returned, 0)
UNION ALL
SELECT concat_ws(' ', 'rolled over into', r.tenant, r.meter, r.period_start AT TIME ZONE 'UTC'),
    concat(sum(t.amount), ' have returned, of at most ', r.amount - r.rolled)
FROM rolled_amounts r
JOIN rolled_returns t USING (tenant, meter, period_start, ends_at)
WHERE r.tenant = ANY($1)
GROUP BY r.tenant, r.meter, r.period_start, r.ends_at
HAVING sum(t.amount) > r.amount - r.rolled
UNION ALL
SELECT concat_ws(' ', 'grant', c.grant_id, 'of', c.tenant, c.meter, 'in', c.period_start AT TIME ZONE 'UTC'),
    concat('goes on with ', c.amount, ', ', c.rolled, ' of them unused before and ', r.returned, ' returned; it had ',
        coalesce(p.amount, 0), ' before, and ', p.whole, ' at first')
FROM continued_grants c
LEFT JOIN grants o ON o.tenant = c.tenant AND o.id = c.grant_id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.amount), 0) AS returned FROM continued_returns r
    WHERE r.tenant = c.tenant AND r.meter = c.meter AND r.period_start = c.period_start AND r.grant_id = c.grant_id
) r
LEFT JOIN LATERAL (
    SELECT b.amount, b.whole FROM (
        SELECT g.amount, g.amount AS whole, g.period_start FROM grants g
        WHERE g.tenant = c.tenant AND g.id = c.grant_id AND g.meter = c.meter AND g.goes_on AND g.period_start < c.period_start
        UNION ALL
        SELECT e.amount, g.amount, e.period_start FROM continued_grants e
        JOIN grants g ON g.tenant = e.tenant AND g.id = e.grant_id
        WHERE e.tenant = c.tenant AND e.grant_id = c.grant_id AND e.meter = c.meter AND e.period_start < c.period_start
    ) b
    ORDER BY b.period_start DESC
    LIMIT 1
) p ON true
WHERE c.tenant = ANY($1)
    AND (c.rolled > coalesce(p.amount, 0) OR c.amount > coalesce(p.whole, 0) OR c.amount <> c.rolled + r.returned
        + greatest(coalesce(o.min_rollover, 0) - c.rolled, 0))
LIMIT $2
