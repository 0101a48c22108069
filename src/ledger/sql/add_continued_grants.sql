INSERT INTO continued_grants (tenant, meter, period_start, grant_id, amount, rolled)
SELECT tenant, meter, period_start, grant_id, sum(amount), sum(rolled)
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::uuid[], $5::numeric[], $6::numeric[])
    AS w(tenant, meter, period_start, grant_id, amount, rolled)
GROUP BY 1, 2, 3, 4
ON CONFLICT (tenant, meter, period_start, grant_id) DO UPDATE SET
    amount = continued_grants.amount + excluded.amount,
    rolled = continued_grants.rolled + excluded.rolled
