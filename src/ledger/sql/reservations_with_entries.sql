-- Each reservation's rows, one for each life, beside the sums of its entries, line by line. What has returned of a hold
-- that was carried over counts as returned before the job has booked it. What left the books with a month counts by its
-- opening; of lives from then, only those that have one, and those that came once the month had left, whose first entry
-- is there.
SELECT id, tenant, r.states, r.records, e.lines, e.reserved, e.consumed
FROM (
    SELECT id, tenant, array_agg(state) AS states, array_agg(record) AS records
    FROM (
        SELECT id, tenant, state, record, born_at FROM reservations WHERE tenant = ANY($1)
        UNION ALL
        SELECT id, tenant, state, record, born_at FROM reservations_archive WHERE tenant = ANY($1)
    ) a
    CROSS JOIN (SELECT max((month + interval '1 month')::timestamp AT TIME ZONE 'UTC') AS from_at FROM openings) held
    WHERE held.from_at IS NULL OR born_at >= held.from_at OR EXISTS (
        SELECT FROM opening_operations o JOIN openings p ON p.number = o.opening
        WHERE o.tenant = a.tenant AND o.operation_id = a.id AND a.born_at >= p.month::timestamp AT TIME ZONE 'UTC'
    ) OR EXISTS (
        SELECT FROM entries e
        WHERE e.tenant = a.tenant AND e.happened_at = a.born_at AND e.operation_id = a.id AND e.step = 1
    )
    GROUP BY 1, 2
) r
FULL JOIN (
    SELECT id, tenant, array_agg(line) AS lines, array_agg(reserved) AS reserved, array_agg(consumed) AS consumed
    FROM (
        SELECT id, tenant, line, sum(reserved)::numeric(28, 9) AS reserved, sum(consumed)::numeric(28, 9) AS consumed
        FROM (
            SELECT operation_id AS id, tenant, line,
                sum(CASE 'reserved' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END)::numeric(28, 9) AS reserved,
                sum(CASE 'consumed' WHEN debit::text THEN amount WHEN credit::text THEN -amount ELSE 0 END)::numeric(28, 9) AS consumed
            FROM (
                SELECT operation_id, tenant, line, debit, credit, amount FROM entries
                WHERE tenant = ANY($1)
                    AND (class = 'usage' OR (class = 'correction' AND credit = 'available') OR (class = 'period' AND carried))
                UNION ALL
                SELECT reservation_id, tenant, line, 'available', 'reserved', amount FROM carried_returns WHERE tenant = ANY($1)
            ) moved
            GROUP BY 1, 2, 3
            UNION ALL
            SELECT operation_id, tenant, line, reserved, consumed FROM opening_operations WHERE tenant = ANY($1)
        ) s
        GROUP BY 1, 2, 3
    ) l
    GROUP BY 1, 2
) e USING (id, tenant)
