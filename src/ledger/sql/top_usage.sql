-- The largest first, those behind ($5, $11). What is not asked for ($6 to $9) is an empty text. $9 chooses rows with a
-- subject or rows without one. A plan is the one that the tenant was on as the hour ended; before it was made, its
-- first one.
WITH plans AS MATERIALIZED (
    SELECT tenant, plan, coalesce(lead(since) OVER versions, 'infinity') AS until_at,
        CASE WHEN lag(version) OVER versions IS NULL THEN '-infinity' ELSE since END AS from_at
    FROM (
        SELECT id AS tenant, coalesce(definition ->> 'plan', '') AS plan, version,
            max(coalesce(effective_at, changed_at)) OVER (PARTITION BY id ORDER BY version) AS since
        FROM policy_history
        WHERE kind = 'tenant' AND definition IS NOT NULL AND $7::boolean AND ($4::text IS NULL OR id = $4)
    ) h
    WINDOW versions AS (PARTITION BY tenant ORDER BY version)
)
SELECT r.*
FROM (
    SELECT n.*, row_number() OVER (ORDER BY consumed DESC, names) AS rank
    FROM (
        SELECT g.*, concat_ws(chr(1), tenant, plan, operation, kind, subject) COLLATE "C" AS names
        FROM (
            SELECT CASE WHEN $6::boolean THEN u.tenant ELSE '' END AS tenant,
                CASE WHEN $7 THEN coalesce(t.plan, '') ELSE '' END AS plan,
                CASE WHEN $8::boolean THEN u.operation ELSE '' END AS operation,
                CASE WHEN $9::boolean THEN s.kind ELSE '' END AS kind,
                CASE WHEN $9 THEN s.id ELSE '' END AS subject,
                sum(u.consumed)::numeric(28, 9) AS consumed,
                sum(u.count)::bigint AS count,
                sum(u.corrections)::numeric(28, 9) AS corrections
            FROM usage_hourly u
            LEFT JOIN subjects s ON s.tenant = u.tenant AND s.number = u.subject
            LEFT JOIN plans t ON t.tenant = u.tenant
                AND t.from_at < u.hour_at + interval '1 hour' AND t.until_at >= u.hour_at + interval '1 hour'
            WHERE u.hour_at >= $1::timestamptz AND u.hour_at < $2::timestamptz AND u.meter = $3::text
                AND CASE WHEN $9 THEN s.number = u.subject ELSE u.subject = 0 AND s.number IS NULL END
                AND ($4::text IS NULL OR u.tenant = $4)
            GROUP BY 1, 2, 3, 4, 5
        ) g
    ) n
) r
WHERE $5::numeric IS NULL OR consumed < $5 OR (consumed = $5 AND names > $11::text)
ORDER BY rank
LIMIT $10::bigint
