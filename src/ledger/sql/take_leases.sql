INSERT INTO leases AS l (name, owner, fence, expires_at)
SELECT name, $2, 1, clock_timestamp() + $3::interval
FROM unnest($1::text[]) AS n(name)
ON CONFLICT (name) DO UPDATE SET
    owner = excluded.owner,
    expires_at = excluded.expires_at,
    fence = l.fence + (l.owner <> excluded.owner)::integer
WHERE l.owner = excluded.owner OR l.expires_at <= clock_timestamp()
RETURNING l.name
