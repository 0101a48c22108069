-- Of these grants those that were sold and have not ended, with what is booked of their burn.
SELECT s.tenant, s.grant_id, s.amount, s.price, s.currency, s.period_start, s.period_end,
    coalesce(b.burnt, 0)::numeric(28, 9) AS burnt, coalesce(b.burns, 0) AS burns
FROM unnest($1::text[], $2::uuid[]) AS w(tenant, grant_id)
JOIN grant_sales s USING (tenant, grant_id)
LEFT JOIN LATERAL (
    SELECT sum(amount) AS burnt, count(*) AS burns FROM grant_burns b WHERE b.tenant = s.tenant AND b.grant_id = s.grant_id
) b ON true
WHERE NOT s.is_over
ORDER BY s.tenant, s.grant_id
FOR UPDATE OF s
