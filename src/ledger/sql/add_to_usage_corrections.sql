-- What the ledger alone corrects of hours, perhaps of some without any use.
INSERT INTO usage_hourly AS u (tenant, meter, hour_at, operation, subject, consumed, count, excess, late, corrections)
SELECT c.tenant, c.meter, c.hour_at, c.operation, c.subject, 0, 0, 0, 0, c.corrections
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::bigint[], $6::numeric[])
    AS c(tenant, meter, hour_at, operation, subject, corrections)
ON CONFLICT (tenant, meter, hour_at, operation, subject) DO UPDATE SET corrections = u.corrections + excluded.corrections
