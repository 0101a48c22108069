-- A sale that is over, with what is booked of its burn.
SELECT s.amount, s.price, s.currency, s.period_start, s.period_end, coalesce(b.burnt, 0) AS burnt
FROM grant_sales s
LEFT JOIN LATERAL (
    SELECT sum(amount) AS burnt FROM grant_burns b WHERE b.tenant = s.tenant AND b.grant_id = s.grant_id
) b ON true
WHERE s.tenant = $1 AND s.grant_id = $2 AND s.is_over
FOR UPDATE OF s
