DELETE FROM quota_notices
WHERE (tenant, meter, period_start, percent) IN (
    SELECT tenant, meter, period_start, percent FROM quota_notices
    WHERE raised_at < clock_timestamp() - $2 * interval '1 day'
    ORDER BY raised_at
    LIMIT $1
)
