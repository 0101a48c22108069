-- In the order of the key, backwards.
SELECT tenant, operation_id, step, line, leg, meter, period_start, credit::text AS credit, debit::text AS debit, amount,
    class::text AS class, ARRAY[excess, late, carried, degraded, corrected] AS flags, happened_at, booked_at, operation, hour_at, subjects,
    chain, batch
FROM entries
WHERE ($1::text IS NULL OR meter = $1)
    AND ($2::timestamptz IS NULL OR happened_at >= $2)
    AND ($3::timestamptz IS NULL OR happened_at < $3)
    AND ($12::text IS NULL OR class::text = $12)
    AND ($4::bigint[] IS NULL OR batch <= ($4)[chain + 1])
    AND ($5::text IS NULL
        OR (tenant, happened_at, operation_id, step, line, leg) < ($5, $6, $7::uuid, $8::integer, $9::smallint, $10::smallint))
ORDER BY tenant DESC, happened_at DESC, operation_id DESC, step DESC, line DESC, leg DESC
LIMIT $11
