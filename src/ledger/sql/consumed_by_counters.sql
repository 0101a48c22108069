SELECT q.counter, q.place, coalesce(sum(u.consumed), 0)::numeric(28, 9) AS consumed
FROM unnest(
    $2::integer[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[], $9::timestamptz[]
) AS q(counter, place, meter, kind, id, operations, from_at, to_at)
JOIN usage_hourly u ON u.tenant = $1 AND u.meter = q.meter AND u.hour_at >= q.from_at AND u.hour_at < q.to_at
    AND u.subject = CASE
        WHEN q.kind IS NULL THEN 0
        ELSE (SELECT number FROM subjects s WHERE s.tenant = $1 AND s.kind = q.kind AND s.id = q.id)
    END
    AND (q.operations IS NULL OR u.operation = ANY(q.operations::text[]))
GROUP BY q.counter, q.place
