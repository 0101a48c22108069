-- Tenants without a row: instances of earlier versions make them so. They are looked at in this run.
INSERT INTO billing (tenant, billed_until, next_end)
SELECT t.id, least(t.created_at, $1::timestamptz), to_timestamp(0)
FROM tenants t
LEFT JOIN billing b ON b.tenant = t.id
WHERE b.tenant IS NULL
ON CONFLICT DO NOTHING
