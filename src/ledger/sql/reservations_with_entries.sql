-- Each reservation's rows, one for each life, beside the sums of its entries, line by line.
SELECT id, tenant, r.states, r.records, e.lines, e.reserved, e.consumed
FROM (
    SELECT id, tenant, array_agg(state) AS states, array_agg(record) AS records
    FROM (
        SELECT id, tenant, state, record FROM reservations WHERE tenant = ANY($1)
        UNION ALL
        SELECT id, tenant, state, record FROM reservations_archive WHERE tenant = ANY($1)
    ) a
    GROUP BY 1, 2
) r
FULL JOIN (
    SELECT id, tenant, array_agg(line) AS lines, array_agg(reserved) AS reserved, array_agg(consumed) AS consumed
    FROM (
        SELECT operation_id AS id, tenant, line,
            sum(CASE 'reserved' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END)::numeric(28, 9) AS reserved,
            sum(CASE 'consumed' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END)::numeric(28, 9) AS consumed
        FROM entries
        WHERE tenant = ANY($1) AND class = 'usage'
        GROUP BY 1, 2, 3
    ) l
    GROUP BY 1, 2
) e USING (id, tenant)
