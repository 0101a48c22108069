-- One that was voided or has ended meanwhile gives nothing.
INSERT INTO grant_advances (tenant, meter, period_start, grant_id, amount)
SELECT w.tenant, w.meter, w.period_start, w.grant_id, w.amount
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::uuid[], $5::numeric[])
    AS w(tenant, meter, period_start, grant_id, amount)
JOIN grants g ON g.tenant = w.tenant AND g.id = w.grant_id
WHERE g.settled_at IS NULL AND g.voided_at IS NULL
ON CONFLICT DO NOTHING
