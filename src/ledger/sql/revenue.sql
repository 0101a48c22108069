-- What issued statements and notes say is owed. Groups first, pages after: a page starts after (period, place), the
-- latest period first. A group that is not asked for ($7 to $10) is an empty text, and so is the meter of a line that
-- is not about use. Taxes are no revenue.
WITH documents AS MATERIALIZED (
    SELECT tenant, number, corrects IS NOT NULL AS is_note, currency, document::jsonb AS document
    FROM statements
    WHERE ($1::text IS NULL OR tenant = $1)
        AND ($2::timestamptz IS NULL OR period_start >= $2)
        AND ($3::timestamptz IS NULL OR period_start < $3)
)
SELECT p.*
FROM (
    SELECT g.*, concat_ws(chr(1), currency, tenant, plan, meter) COLLATE "C" AS place
    FROM (
        SELECT CASE WHEN $7::boolean THEN d.document ->> 'start' ELSE '' END COLLATE "C" AS period,
            CASE WHEN $8::boolean THEN d.tenant ELSE '' END AS tenant,
            CASE WHEN $9::boolean THEN coalesce(d.document ->> 'plan', '') ELSE '' END AS plan,
            CASE WHEN $10::boolean THEN coalesce(l.line ->> 'meter', l.line -> 'key' ->> 'meter', '') ELSE '' END AS meter,
            d.currency,
            coalesce(sum((l.line ->> 'amount')::numeric) FILTER (WHERE NOT is_note), 0)::numeric(28, 9) AS billed,
            coalesce(sum((l.line ->> 'amount')::numeric) FILTER (WHERE is_note), 0)::numeric(28, 9) AS corrected,
            count(DISTINCT (d.tenant, d.number)) AS documents
        FROM documents d
        CROSS JOIN LATERAL jsonb_array_elements(d.document -> 'lines') AS l(line)
        WHERE coalesce(l.line ->> 'kind', l.line -> 'key' ->> 'kind') IS DISTINCT FROM 'tax'
        GROUP BY 1, 2, 3, 4, 5
    ) g
) p
WHERE $4::text IS NULL OR period < $4 OR (period = $4 AND place > $5::text)
ORDER BY period DESC, place
LIMIT $6::bigint
