-- Adjustments of money booked up to these periods that are on no statement, in the order in which they were booked.
SELECT a.tenant, a.id, a.meter, a.currency, a.amount, a.reason, a.happened_at, a.corrects, a.booked_in AS period_start
FROM unnest($1::text[], $2::timestamptz[]) AS w(tenant, period_start)
JOIN adjustments a ON a.tenant = w.tenant AND a.effect = 'money' AND a.state = 'booked' AND a.statement IS NULL
    AND a.booked_in <= w.period_start
ORDER BY a.tenant, a.booked_at, a.id
