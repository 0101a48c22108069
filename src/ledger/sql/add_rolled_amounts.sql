INSERT INTO rolled_amounts (tenant, meter, period_start, ends_at, periods_left, amount, rolled)
SELECT tenant, meter, period_start, ends_at, max(periods_left), sum(amount), sum(rolled)
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::smallint[], $6::numeric[], $7::numeric[])
    AS w(tenant, meter, period_start, ends_at, periods_left, amount, rolled)
GROUP BY 1, 2, 3, 4
ON CONFLICT (tenant, meter, period_start, ends_at) DO UPDATE SET
    periods_left = greatest(rolled_amounts.periods_left, excluded.periods_left),
    amount = rolled_amounts.amount + excluded.amount,
    rolled = rolled_amounts.rolled + excluded.rolled
