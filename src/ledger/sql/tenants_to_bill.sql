-- Tenants whose next period to be billed may have ended. A tenant that was never billed may have books of earlier
-- periods; those that an older version closed are left out, since entries may have come after their close.
SELECT b.tenant, b.billed_until, b.begun_at, b.next_end,
    CASE WHEN b.begun_at IS NULL THEN (
        SELECT min(s.period_start)
        FROM balances s
        LEFT JOIN period_closures c USING (tenant, meter, period_start)
        WHERE s.tenant = b.tenant AND c.is_final IS DISTINCT FROM false
    ) END AS first_booked
FROM billing b
WHERE b.next_end <= $1 AND ($2::timestamptz IS NULL OR (b.next_end, b.tenant) > ($2, $3))
ORDER BY b.next_end, b.tenant
LIMIT $4
