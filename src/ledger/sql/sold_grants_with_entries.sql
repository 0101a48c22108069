-- Each sold grant with what is booked of its price: by its sale, its burns, its entries, and whether it has ended.
SELECT coalesce(s.tenant, e.tenant) AS tenant, coalesce(s.grant_id, e.operation_id) AS grant_id, s.currency, s.price, s.amount,
    coalesce(s.refunded, 0)::numeric(28, 9) AS refunded, coalesce(s.is_over, false) AS is_over,
    coalesce(g.paid_amount = s.price AND g.currency = s.currency AND g.amount = s.amount AND g.meter = s.meter, false) AS is_as_granted,
    g.settled_at IS NOT NULL OR k.tenant IS NOT NULL AS has_ended, k.tenant IS NOT NULL AS is_closed,
    CASE WHEN g.period_start IS NOT NULL THEN g.amount - g.settled_amount END AS burnt_by_settlement,
    coalesce(b.burnt, 0)::numeric(28, 9) AS burnt, coalesce(b.recognised, 0)::numeric(28, 9) AS recognised,
    coalesce(b.forfeited, 0)::numeric(28, 9) AS forfeited,
    coalesce(e.sold, 0)::numeric(28, 9) AS booked_sold, coalesce(e.recognised, 0)::numeric(28, 9) AS booked_recognised,
    coalesce(e.forfeited, 0)::numeric(28, 9) AS booked_forfeited, coalesce(e.refunded, 0)::numeric(28, 9) AS booked_refunded,
    coalesce(e.deferred, 0)::numeric(28, 9) AS booked_deferred
FROM (SELECT * FROM grant_sales WHERE tenant = ANY($1)) s
FULL JOIN (
    SELECT tenant, operation_id, substr(meter, 7) AS currency,
        sum(amount) FILTER (WHERE credit = 'deferred' AND debit = 'receivable') AS sold,
        sum(CASE credit WHEN 'revenue' THEN amount ELSE -amount END) FILTER (WHERE 'revenue' IN (credit, debit)) AS recognised,
        sum(amount) FILTER (WHERE credit = 'breakage' AND debit = 'deferred') AS forfeited,
        sum(amount) FILTER (WHERE credit = 'receivable' AND debit = 'deferred') AS refunded,
        sum(CASE WHEN credit = 'deferred' THEN amount ELSE -amount END) AS deferred
    FROM entries
    WHERE tenant = ANY($1) AND meter LIKE 'money:%' AND 'deferred' IN (credit, debit)
    GROUP BY 1, 2, 3
) e ON e.tenant = s.tenant AND e.operation_id = s.grant_id AND e.currency = s.currency
LEFT JOIN (
    SELECT tenant, grant_id, sum(amount) AS burnt, sum(recognised) AS recognised, sum(forfeited) AS forfeited
    FROM grant_burns
    WHERE tenant = ANY($1)
    GROUP BY 1, 2
) b ON b.tenant = s.tenant AND b.grant_id = s.grant_id
LEFT JOIN grants g ON g.tenant = s.tenant AND g.id = s.grant_id
LEFT JOIN LATERAL (
    SELECT max(c.period_start) AS period_start FROM continued_grants c WHERE c.tenant = g.tenant AND c.grant_id = g.id
) l ON true
LEFT JOIN period_closures k ON k.tenant = g.tenant AND k.meter = g.meter AND k.period_start = coalesce(l.period_start, g.period_start)
ORDER BY 1, 2
