-- In the order of balances_by_end, backwards.
SELECT b.tenant, b.meter, b.period_start, b.period_end, c.closed_at,
    ARRAY[granted, rolled_in, carried_in, b.overage, adjusted,
        available, reserved, consumed, b.lapsed, voided, rolled_out, carried_out, repaid] AS accounts
FROM balances b
JOIN period_closures c ON c.tenant = b.tenant AND c.meter = b.meter AND c.period_start = b.period_start
WHERE ($1::text IS NULL OR b.tenant = $1)
    AND ($2::text IS NULL OR b.meter = $2)
    AND ($3::timestamptz IS NULL OR b.period_end >= $3)
    AND ($4::timestamptz IS NULL OR b.period_end < $4)
    AND ($5::timestamptz IS NULL OR (b.period_end, b.tenant, b.meter) < ($5, $6::text, $7::text))
ORDER BY b.period_end DESC, b.tenant DESC, b.meter DESC
LIMIT $8
