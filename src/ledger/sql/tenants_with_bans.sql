-- Tenants with bans that admins have placed, by id.
SELECT definition FROM tenants
WHERE definition ? 'bans' AND ($1::text IS NULL OR id > $1)
ORDER BY id
LIMIT $2
