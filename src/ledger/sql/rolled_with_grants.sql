-- What came over into these periods with grants that go on.
SELECT c.tenant, c.meter, c.period_start, sum(c.rolled)::numeric(28, 9) AS rolled
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN continued_grants c USING (tenant, meter, period_start)
GROUP BY 1, 2, 3
