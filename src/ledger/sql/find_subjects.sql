SELECT s.tenant, s.number, s.kind, s.id
FROM unnest($1::text[], $2::text[], $3::text[]) AS w(tenant, kind, id)
JOIN subjects s ON s.tenant = w.tenant AND s.kind = w.kind AND s.id = w.id
