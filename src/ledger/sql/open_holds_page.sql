SELECT id, record
FROM reservations_open
WHERE tenant = $1
    AND ($2::timestamptz IS NULL OR (expires_at, id) > ($2, $3))
    AND ($4::text[] IS NULL OR subjects <> '{}' AND subjects && (
        SELECT array_agg(s.number) FROM unnest($4::text[], $5::text[]) AS w(kind, id)
        JOIN subjects s ON s.tenant = $1 AND s.kind = w.kind AND s.id = w.id
    ))
ORDER BY expires_at, id
LIMIT $6
