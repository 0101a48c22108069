-- What was given back for these grants is on these notes.
UPDATE grant_sales s SET note = w.number
FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS w(tenant, id, number)
WHERE s.tenant = w.tenant AND s.grant_id = w.id
