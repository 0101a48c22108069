-- Each statement and note beside the sum of its entries, in the order of their numbers.
SELECT coalesce(s.tenant, e.tenant) AS tenant, s.number, s.corrects, s.currency, s.total, s.document, s.hash,
    coalesce(e.receivable, 0)::numeric(28, 9) AS receivable
FROM (SELECT * FROM statements WHERE tenant = ANY($1)) s
FULL JOIN (
    SELECT tenant, operation_id, substr(meter, 7) AS currency,
        sum(CASE WHEN debit = 'receivable' THEN amount ELSE -amount END) AS receivable
    FROM entries
    WHERE tenant = ANY($1) AND meter LIKE 'money:%'
    GROUP BY 1, 2, 3
) e ON e.tenant = s.tenant AND e.operation_id = s.operation_id AND e.currency = s.currency
ORDER BY 1, s.number
