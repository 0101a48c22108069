-- What the gate has counted.
SELECT b.meter, b.period_start, b.consumed - b.consumed_beside_gate AS consumed
FROM balances b
JOIN unnest($2::text[], $3::timestamptz[]) AS w(meter, period_start) USING (meter, period_start)
WHERE b.tenant = $1
