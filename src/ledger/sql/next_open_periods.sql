-- The periods that begin at these instants, are open in the books and are not closed.
SELECT q.tenant, q.meter, q.period_start, q.period_end, q.included
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN quota_periods q USING (tenant, meter, period_start)
LEFT JOIN period_closures c USING (tenant, meter, period_start)
WHERE c.tenant IS NULL
