SELECT r.id, r.operation, r.born_at, r.expires_at, n.kinds, n.names, e.meter, e.held::numeric(28, 9) AS held
FROM reservations r
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(s.kind ORDER BY s.number), '{}') AS kinds,
        coalesce(array_agg(s.id ORDER BY s.number), '{}') AS names
    FROM subjects s WHERE s.tenant = r.tenant AND s.number = ANY(r.subjects)
) n
LEFT JOIN LATERAL (
    SELECT meter, sum(CASE WHEN debit = 'reserved' THEN amount ELSE -amount END) AS held
    FROM entries
    -- No entry is older than the reservation's birth, unless the clock was set back.
    WHERE tenant = r.tenant AND happened_at >= r.born_at - interval '1 day' AND operation_id = r.id
        AND 'reserved' IN (debit, credit)
    GROUP BY meter
) e ON true
WHERE r.partition = $1 AND r.tenant = $2 AND r.id = ANY($3)
