SELECT q.tenant, q.meter, q.period_start, q.period_end, n.tenant IS NOT NULL AS next_is_open
FROM quota_periods q
LEFT JOIN quota_periods n ON n.tenant = q.tenant AND n.meter = q.meter AND n.period_start = q.period_end
WHERE q.period_start <= $1 AND q.period_end > $1 AND q.period_end <= $2 AND n.delivered_at IS NULL
    AND ($3::text IS NULL OR (q.tenant, q.meter) > ($3, $4))
ORDER BY q.tenant, q.meter
LIMIT $5
