-- Puts hourly usage right that differs from its entries; a row without any has no use.
UPDATE usage_hourly u SET
    consumed = f.consumed, count = f.count, excess = f.excess, late = f.late, corrections = f.corrections
FROM (
    SELECT tenant, meter, hour_at, operation, subject,
        coalesce(e.consumed, 0) AS consumed, coalesce(e.count, 0) AS count, coalesce(e.excess, 0) AS excess,
        coalesce(e.late, 0) AS late, coalesce(e.corrections, 0) AS corrections
    FROM (SELECT tenant, meter, hour_at, operation, subject FROM usage_hourly WHERE tenant = ANY($1)) s
    LEFT JOIN (SELECT * FROM usage_by_entries WHERE tenant = ANY($1)) e USING (tenant, meter, hour_at, operation, subject)
) f
WHERE u.tenant = f.tenant AND u.meter = f.meter AND u.hour_at = f.hour_at AND u.operation = f.operation
    AND u.subject = f.subject
    AND (u.consumed, u.count, u.excess, u.late, u.corrections) <> (f.consumed, f.count, f.excess, f.late, f.corrections)
