-- What came over with grants that go on into the tenant's periods that contain this instant.
SELECT c.meter, sum(c.rolled)::numeric(28, 9) AS rolled
FROM balances b
JOIN continued_grants c USING (tenant, meter, period_start)
WHERE b.tenant = $1 AND b.period_start <= $2 AND b.period_end > $2
GROUP BY 1
