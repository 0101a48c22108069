-- Tenants with prices of their own, of this meter if one is named, by id.
SELECT definition FROM tenants
WHERE definition ? 'prices' AND ($1::text IS NULL OR id > $1)
    AND ($2::text IS NULL OR definition -> 'prices' @> jsonb_build_array(jsonb_build_object('meter', $2)))
ORDER BY id
LIMIT $3
