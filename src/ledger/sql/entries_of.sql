SELECT tenant, operation_id, step, line, leg, meter, period_start, credit::text AS credit, debit::text AS debit, amount,
    class::text AS class, ARRAY[excess, late, carried, degraded, corrected] AS flags, happened_at, booked_at, operation, hour_at, subjects,
    chain, batch
FROM entries
WHERE tenant = $1
    AND ($2::text IS NULL OR meter = $2)
    AND ($3::timestamptz IS NULL OR happened_at >= $3)
    AND ($4::timestamptz IS NULL OR happened_at < $4)
    AND ($5::uuid IS NULL OR operation_id = $5)
    AND ($13::text IS NULL OR class::text = $13)
    AND ($6::timestamptz IS NULL
        OR (happened_at, operation_id, step, line, leg) < ($6, $7::uuid, $8::integer, $9::smallint, $10::smallint))
    AND ($12::bigint[] IS NULL OR batch <= ($12)[chain + 1])
ORDER BY happened_at DESC, operation_id DESC, step DESC, line DESC, leg DESC
LIMIT $11
