-- What was unused before of all that has come over into these periods: of grants that go on, each by itself, and of all
-- else together.
SELECT r.tenant, r.meter, r.period_start, NULL::uuid AS grant_id, sum(r.rolled) AS rolled
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN rolled_amounts r USING (tenant, meter, period_start)
GROUP BY 1, 2, 3
UNION ALL
SELECT c.tenant, c.meter, c.period_start, c.grant_id, c.rolled
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN continued_grants c USING (tenant, meter, period_start)
