-- These adjustments are on these statements.
UPDATE adjustments a SET statement = w.number
FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS w(tenant, id, number)
WHERE a.tenant = w.tenant AND a.id = w.id
