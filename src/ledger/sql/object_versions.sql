SELECT coalesce(tenants.version, objects.version) AS version,
    (SELECT max(version) FROM policy_history h WHERE h.kind = changes.kind AND h.id = changes.id) AS last
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS changes (kind, id, place)
LEFT JOIN tenants ON changes.kind = 'tenant' AND tenants.id = changes.id
LEFT JOIN policy_objects objects ON objects.kind = changes.kind AND objects.id = changes.id
ORDER BY place
