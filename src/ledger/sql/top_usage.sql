-- The largest first. What is not asked for ($6 to $9) is an empty text. $9 chooses rows with a subject or rows without
-- one.
SELECT r.*
FROM (
    SELECT g.*, row_number() OVER (ORDER BY consumed DESC, tenant, plan, operation, kind, subject) AS rank
    FROM (
        SELECT CASE WHEN $6::boolean THEN u.tenant ELSE '' END AS tenant,
            CASE WHEN $7::boolean THEN coalesce(t.definition->>'plan', '') ELSE '' END AS plan,
            CASE WHEN $8::boolean THEN u.operation ELSE '' END AS operation,
            CASE WHEN $9::boolean THEN s.kind ELSE '' END AS kind,
            CASE WHEN $9 THEN s.id ELSE '' END AS subject,
            sum(u.consumed)::numeric(28, 9) AS consumed,
            sum(u.count)::bigint AS count
        FROM usage_hourly u
        LEFT JOIN subjects s ON s.tenant = u.tenant AND s.number = u.subject
        LEFT JOIN tenants t ON t.id = u.tenant
        WHERE u.hour_at >= $1::timestamptz AND u.hour_at < $2::timestamptz AND u.meter = $3::text
            AND CASE WHEN $9 THEN s.number = u.subject ELSE u.subject = 0 AND s.number IS NULL END
            AND ($4::text IS NULL OR u.tenant = $4)
        GROUP BY 1, 2, 3, 4, 5
    ) g
) r
WHERE rank > $5::bigint
ORDER BY rank
LIMIT $10::bigint
