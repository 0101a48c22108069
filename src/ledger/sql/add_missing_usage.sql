-- Hours that have entries and no row.
INSERT INTO usage_hourly (tenant, meter, hour_at, operation, subject, consumed, count, excess, late, corrections)
SELECT tenant, meter, hour_at, operation, subject, consumed, count, excess, late, corrections
FROM usage_by_entries
WHERE tenant = ANY($1)
ON CONFLICT (tenant, meter, hour_at, operation, subject) DO NOTHING
