INSERT INTO subjects AS s (tenant, kind, id)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
ON CONFLICT (tenant, kind, id) DO UPDATE SET kind = excluded.kind
RETURNING s.tenant, s.number, s.kind, s.id
