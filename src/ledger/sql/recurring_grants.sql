-- Recurring grants that these periods get and do not have yet. What is voided after a period has ended was given in it.
SELECT g.id, w.period_start
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN grants g ON g.tenant = w.tenant AND g.meter = w.meter
    AND g.effective_at < w.period_start AND g.expires_at > w.period_start
JOIN quota_periods q ON q.tenant = g.tenant AND q.meter = g.meter AND q.period_start = w.period_start
WHERE g.recurrence = 'period' AND (g.voided_at IS NULL OR g.voided_at >= q.period_end)
    AND NOT EXISTS (
        SELECT FROM grants r WHERE r.tenant = g.tenant AND r.repeats = g.id AND r.effective_at = w.period_start
    )
ORDER BY g.tenant, g.meter, w.period_start, g.id
