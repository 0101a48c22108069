-- Balances that have entries and no row, and when their periods end, where something but the calendar says it. And
-- those of periods without entries that need one to be closed.
SELECT e.tenant, e.meter, e.period_start, coalesce(q.period_end, k.period_end, o.period_end) AS period_end
FROM balances_by_entries e
LEFT JOIN balances b USING (tenant, meter, period_start)
LEFT JOIN quota_periods q USING (tenant, meter, period_start)
LEFT JOIN period_closures k USING (tenant, meter, period_start)
LEFT JOIN LATERAL (
    SELECT max(o.period_end) AS period_end FROM balances o WHERE o.tenant = e.tenant AND o.period_start = e.period_start
) o ON true
WHERE e.tenant = ANY($1) AND b.tenant IS NULL
UNION
SELECT tenant, meter, period_start, period_end FROM quota_periods_without_balance WHERE tenant = ANY($1)
ORDER BY 1, 2, 3
