-- Tenants with overrides of their own, of this limit if one is named, by id.
SELECT definition FROM tenants
WHERE definition -> 'overrides' <> '[]' AND ($1::text IS NULL OR id > $1)
    AND ($3::text IS NULL OR definition -> 'overrides' @> jsonb_build_array(jsonb_build_object('limit', $3)))
ORDER BY id
LIMIT $2
