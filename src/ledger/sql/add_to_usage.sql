INSERT INTO usage_hourly AS u (tenant, meter, hour_at, operation, subject, consumed, count, excess, late)
SELECT tenant, meter, hour_at, operation, subject, consumed, count, excess, late
FROM unnest($1::moved_usage[])
ON CONFLICT (tenant, meter, hour_at, operation, subject) DO UPDATE SET
    consumed = u.consumed + excluded.consumed,
    count = u.count + excluded.count,
    excess = u.excess + excluded.excess,
    late = u.late + excluded.late
