-- Balances as they are with what was booked of them after $1, which their reader takes off; and of money, which has no
-- balances, all that was booked up to $1.
WITH page AS MATERIALIZED (
    SELECT tenant, meter, period_start, period_end,
        ARRAY[granted, rolled_in, carried_in, overage, adjusted,
            available, reserved, consumed, lapsed, voided, rolled_out, carried_out, repaid] AS accounts
    FROM balances
    WHERE ($2::text IS NULL OR tenant = $2) AND ($3::text IS NULL OR meter = $3)
        AND ($4::text IS NULL OR (tenant, meter, period_start) > ($4, $5::text, $6::timestamptz))
    ORDER BY tenant, meter, period_start
    LIMIT $7::bigint
), later AS (
    SELECT tenant, meter, period_start, credit, debit, sum(amount)::numeric(28, 9) AS amount
    FROM entries
    WHERE booked_at > $1::timestamptz AND ($2 IS NULL OR tenant = $2) AND ($3 IS NULL OR meter = $3)
        AND tenant >= (SELECT min(tenant) FROM page) AND tenant <= (SELECT max(tenant) FROM page)
    GROUP BY tenant, meter, period_start, credit, debit
), money AS (
    SELECT tenant, meter, credit, debit, sum(amount)::numeric(28, 9) AS amount
    FROM entries
    WHERE meter LIKE 'money:%' AND booked_at <= $1 AND ($2 IS NULL OR tenant = $2) AND ($3 IS NULL OR meter = $3)
        AND ($4 IS NULL OR (tenant, meter) > ($4, $5))
        AND ((SELECT count(*) FROM page) < $7 OR tenant <= (SELECT max(tenant) FROM page))
    GROUP BY tenant, meter, credit, debit
)
SELECT *
FROM (
    SELECT tenant, meter, period_start, period_end, accounts,
        coalesce(array_agg(credit::text) FILTER (WHERE amount IS NOT NULL), '{}') AS credits,
        coalesce(array_agg(debit::text) FILTER (WHERE amount IS NOT NULL), '{}') AS debits,
        coalesce(array_agg(amount) FILTER (WHERE amount IS NOT NULL), '{}') AS amounts
    FROM page LEFT JOIN later USING (tenant, meter, period_start)
    GROUP BY tenant, meter, period_start, period_end, accounts
    UNION ALL
    SELECT tenant, meter, NULL, NULL, NULL, array_agg(credit::text), array_agg(debit::text), array_agg(amount)
    FROM money
    GROUP BY tenant, meter
) b
ORDER BY tenant, meter, period_start
LIMIT $7
