-- What was given back for grants that were voided before the ends of these periods and is on no note, with the
-- statement of the sale, where that is issued.
SELECT s.tenant, s.grant_id AS id, s.refunded, s.currency, i.period_start
FROM unnest($1::text[], $2::timestamptz[]) AS w(tenant, period_end)
JOIN grant_sales s ON s.tenant = w.tenant AND s.refunded > 0 AND s.note IS NULL AND s.refunded_at < w.period_end
LEFT JOIN statements i ON i.tenant = s.tenant AND i.number = s.statement
ORDER BY s.tenant, s.grant_id
