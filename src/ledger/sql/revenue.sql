-- What issued statements and notes say is owed, each in the period in whose bill it is, and what is earned of grants
-- that they have. Groups first, pages after: a page starts after (period, place), the latest period first. A group that
-- is not asked for ($7 to $10) is an empty text, and so is the meter of a line that is about none. Taxes are no
-- revenue. The price of a grant is deferred by the line that bills it; what burns and lapses takes from that in its own
-- period, in the zone and under the plan of that one's statement; where it has none, of the sale's. A note's period is
-- cut in the zone of the statement that it was issued with.
WITH documents AS MATERIALIZED (
    SELECT tenant, number, is_note, currency, document,
        (billed_in AT TIME ZONE first_value(document ->> 'zone') OVER (
            PARTITION BY tenant, billed_in ORDER BY period_start DESC
        ))::date::text AS start
    FROM (
        SELECT tenant, number, corrects IS NOT NULL AS is_note, currency, document::jsonb AS document, period_start,
            coalesce(billed_in, period_start) AS billed_in
        FROM statements
        WHERE $1::text IS NULL OR tenant = $1
    ) s
    WHERE ($2::timestamptz IS NULL OR billed_in >= $2)
        AND ($3::timestamptz IS NULL OR billed_in < $3)
), moved AS (
    SELECT d.start, d.tenant, d.document ->> 'plan' AS plan,
        coalesce(l.line ->> 'meter', l.line -> 'key' ->> 'meter') AS meter, d.currency, d.is_note, l.amount AS owed,
        CASE WHEN l.kind = 'grant' THEN l.amount ELSE 0 END AS deferred, 0 AS breakage, d.number
    FROM documents d
    CROSS JOIN LATERAL (
        SELECT line, coalesce(line ->> 'kind', line -> 'key' ->> 'kind') AS kind, (line ->> 'amount')::numeric AS amount
        FROM jsonb_array_elements(d.document -> 'lines') AS e(line)
    ) l
    WHERE l.kind IS DISTINCT FROM 'tax'
    UNION ALL
    SELECT (b.period_start AT TIME ZONE (d.document ->> 'zone'))::date::text, b.tenant, d.document ->> 'plan', s.meter,
        s.currency,
        false, 0, -b.recognised - b.forfeited, b.forfeited, NULL
    FROM grant_burns b
    JOIN grant_sales s USING (tenant, grant_id)
    CROSS JOIN LATERAL (
        SELECT document::jsonb AS document
        FROM statements i
        WHERE i.tenant = s.tenant
            AND (i.number = s.statement OR (i.period_start = b.period_start AND i.corrects IS NULL))
        ORDER BY i.period_start = b.period_start DESC, i.number
        LIMIT 1
    ) d
    WHERE ($1::text IS NULL OR b.tenant = $1)
        AND ($2::timestamptz IS NULL OR b.period_start >= $2)
        AND ($3::timestamptz IS NULL OR b.period_start < $3)
)
SELECT p.*
FROM (
    SELECT g.*, concat_ws(chr(1), currency, tenant, plan, meter) COLLATE "C" AS place
    FROM (
        SELECT CASE WHEN $7::boolean THEN start ELSE '' END COLLATE "C" AS period,
            CASE WHEN $8::boolean THEN moved.tenant ELSE '' END AS tenant,
            CASE WHEN $9::boolean THEN coalesce(moved.plan, '') ELSE '' END AS plan,
            CASE WHEN $10::boolean THEN coalesce(moved.meter, '') ELSE '' END AS meter,
            currency,
            coalesce(sum(owed) FILTER (WHERE NOT is_note), 0)::numeric(28, 9) AS billed,
            coalesce(sum(owed) FILTER (WHERE is_note), 0)::numeric(28, 9) AS corrected,
            sum(deferred)::numeric(28, 9) AS deferred, sum(breakage)::numeric(28, 9) AS breakage,
            count(DISTINCT (moved.tenant, number)) FILTER (WHERE number IS NOT NULL) AS documents
        FROM moved
        GROUP BY 1, 2, 3, 4, 5
    ) g
) p
WHERE $4::text IS NULL OR period < $4 OR (period = $4 AND place > $5::text)
ORDER BY period DESC, place
LIMIT $6::bigint
