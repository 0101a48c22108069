-- Grants sold up to these periods that are on no statement, in the order of their sales.
SELECT s.tenant, s.grant_id AS id, s.meter, s.currency, s.amount, s.price, s.period_start
FROM unnest($1::text[], $2::timestamptz[]) AS w(tenant, period_start)
JOIN grant_sales s ON s.tenant = w.tenant AND s.statement IS NULL AND s.period_start <= w.period_start
ORDER BY s.tenant, s.sold_at, s.grant_id
