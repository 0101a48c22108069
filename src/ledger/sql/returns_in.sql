SELECT r.epoch, r.sequence, r.line, r.tenant, r.meter, r.period_start, r.period_end, r.amount, r.reservation_id, r.step,
    r.happened_at, r.operation, r.hour_at, r.subjects
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN carried_returns r USING (tenant, meter, period_start)
ORDER BY r.epoch, r.sequence, r.line
