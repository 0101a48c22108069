INSERT INTO period_closures (tenant, meter, period_start, period_end, closed_at, lapsed, overage, rolled, paid_by_next, added, is_final)
SELECT *, true FROM unnest(
    $1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::numeric[], $7::numeric[], $8::numeric[],
    $9::numeric[], $10::numeric[]
)
