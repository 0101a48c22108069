-- Each statement and note beside the sum of its entries, in the order of their numbers: those of its own operation, and
-- those of the sales, refunds and adjustments that it has. What waits for its statement is left out.
WITH placed AS (
    SELECT e.tenant, substr(e.meter, 7) AS currency, CASE WHEN e.debit = 'receivable' THEN e.amount ELSE -e.amount END AS amount,
        CASE
            WHEN g.grant_id IS NOT NULL AND e.debit = 'receivable' THEN g.statement
            WHEN g.grant_id IS NOT NULL THEN g.note
            WHEN a.id IS NOT NULL THEN a.statement
            ELSE o.number
        END AS number,
        coalesce(g.grant_id, a.id) IS NOT NULL AS is_of_charge
    FROM entries e
    LEFT JOIN statements o ON o.tenant = e.tenant AND o.operation_id = e.operation_id
    LEFT JOIN grant_sales g ON g.tenant = e.tenant AND g.grant_id = e.operation_id
    LEFT JOIN adjustments a ON a.tenant = e.tenant AND a.id = e.operation_id AND a.effect = 'money'
    WHERE e.tenant = ANY($1) AND e.meter LIKE 'money:%' AND 'receivable' IN (e.credit, e.debit)
)
SELECT coalesce(s.tenant, e.tenant) AS tenant, s.number, s.corrects, s.currency, s.total, s.document, s.hash,
    s.period_start, s.period_end, s.issued_at, s.billed_in, s.operation_id,
    coalesce(e.receivable, 0)::numeric(28, 9) AS receivable
FROM (SELECT * FROM statements WHERE tenant = ANY($1)) s
FULL JOIN (
    SELECT tenant, number, currency, sum(amount) AS receivable
    FROM placed
    WHERE number IS NOT NULL OR NOT is_of_charge
    GROUP BY 1, 2, 3
) e ON e.tenant = s.tenant AND e.number = s.number AND e.currency = s.currency
ORDER BY 1, s.number
