-- Groups first, pages after: a page starts after (start, place), newest first. A group that is not asked for ($12 to
-- $15) is an empty text. $16 chooses rows with a subject or rows without one. A plan is the one that the tenant was
-- on as the hour ended; before it was made, its first one. Each zone ($7) holds from its instant ($17) on, the first
-- one from the beginning; no day or month goes on into the next one's time.
WITH zones AS MATERIALIZED (
    SELECT zone, coalesce(lead(since) OVER in_order, 'infinity') AS until_at,
        CASE WHEN lag(since) OVER in_order IS NULL THEN '-infinity' ELSE since END AS from_at
    FROM unnest($7::text[], $17::timestamptz[]) AS dated (zone, since)
    WINDOW in_order AS (ORDER BY since)
),
plans AS MATERIALIZED (
    SELECT tenant, plan, coalesce(lead(since) OVER versions, 'infinity') AS until_at,
        CASE WHEN lag(version) OVER versions IS NULL THEN '-infinity' ELSE since END AS from_at
    FROM (
        SELECT id AS tenant, coalesce(definition ->> 'plan', '') AS plan, version,
            max(coalesce(effective_at, changed_at)) OVER (PARTITION BY id ORDER BY version) AS since
        FROM policy_history
        WHERE kind = 'tenant' AND definition IS NOT NULL AND $13::boolean AND ($3::text IS NULL OR id = $3)
    ) h
    WINDOW versions AS (PARTITION BY tenant ORDER BY version)
)
SELECT p.*
FROM (
    SELECT g.*, concat_ws(chr(1), tenant, plan, meter, operation, kind, subject) COLLATE "C" AS place
    FROM (
        SELECT CASE
                WHEN $11::text = 'hour' THEN u.hour_at
                WHEN $11 IS NOT NULL THEN greatest(z.from_at, date_trunc($11, u.hour_at, z.zone))
            END AS start_at,
            CASE WHEN $12::boolean THEN u.tenant ELSE '' END AS tenant,
            CASE WHEN $13 THEN coalesce(t.plan, '') ELSE '' END AS plan,
            u.meter,
            CASE WHEN $14::boolean THEN u.operation ELSE '' END AS operation,
            CASE WHEN $15::boolean THEN s.kind ELSE '' END AS kind,
            CASE WHEN $15 THEN s.id ELSE '' END AS subject,
            sum(u.consumed)::numeric(28, 9) AS consumed,
            sum(u.count)::bigint AS count,
            sum(u.excess)::numeric(28, 9) AS excess,
            sum(u.late)::numeric(28, 9) AS late,
            sum(u.corrections)::numeric(28, 9) AS corrections
        FROM usage_hourly u
        JOIN zones z ON u.hour_at >= z.from_at AND u.hour_at < z.until_at
        LEFT JOIN subjects s ON s.tenant = u.tenant AND s.number = u.subject
        LEFT JOIN plans t ON t.tenant = u.tenant
            AND t.from_at < u.hour_at + interval '1 hour' AND t.until_at >= u.hour_at + interval '1 hour'
        WHERE u.hour_at >= $1::timestamptz AND u.hour_at < $2::timestamptz
            AND CASE WHEN $16::boolean THEN s.number = u.subject ELSE u.subject = 0 AND s.number IS NULL END
            AND ($3::text IS NULL OR u.tenant = $3)
            AND ($4::text IS NULL OR u.meter = $4)
            AND ($5::text IS NULL OR (s.kind = $5 AND s.id = $6::text))
        GROUP BY 1, 2, 3, 4, 5, 6, 7
    ) g
) p
WHERE $8::timestamptz IS NULL OR start_at < $8 OR (start_at IS NOT DISTINCT FROM $8 AND place > $9::text)
    OR (start_at IS NULL AND place > $9)
ORDER BY start_at DESC, place
LIMIT $10::bigint
