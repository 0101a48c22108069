-- A page of the quotas' periods of which use was taken back from before a cut, and what follows is not booked.
SELECT DISTINCT tenant, meter, period_start
FROM unwindings
WHERE NOT is_settled AND ($1::text IS NULL OR tenant = $1)
    AND ($2::text IS NULL OR (tenant, meter, period_start) > ($2, $3::text, $4::timestamptz))
ORDER BY tenant, meter, period_start
LIMIT $5
