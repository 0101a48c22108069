SELECT s.tenant, s.number, s.hash
FROM unnest($1::text[]) AS w(tenant)
JOIN LATERAL (SELECT * FROM statements l WHERE l.tenant = w.tenant ORDER BY l.number DESC LIMIT 1) s ON true
