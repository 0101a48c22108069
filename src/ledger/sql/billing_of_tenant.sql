SELECT b.tenant, b.billed_until, b.begun_at, b.next_end,
    CASE WHEN b.begun_at IS NULL THEN (
        SELECT min(s.period_start)
        FROM balances s
        LEFT JOIN period_closures c USING (tenant, meter, period_start)
        WHERE s.tenant = b.tenant AND c.is_final IS DISTINCT FROM false
    ) END AS first_booked
FROM billing b
WHERE b.tenant = $1
