SELECT id, version, definition, counter_resets, archived, created_at,
    coalesce((
        SELECT jsonb_agg(
            jsonb_build_object('from_ms', (extract(epoch FROM from_at) * 1000)::bigint, 'zone', zone, 'anchor_day', anchor_day)
            ORDER BY from_at)
        FROM calendars WHERE calendars.tenant = tenants.id
    ), '[]') AS calendars,
    coalesce((
        SELECT jsonb_agg(
            jsonb_build_object('from_ms', (extract(epoch FROM from_at) * 1000)::bigint, 'currency', currency)
            ORDER BY from_at)
        FROM tenant_currencies WHERE tenant_currencies.tenant = tenants.id
    ), '[]') AS currencies
FROM tenants
WHERE ($1::text[] IS NULL OR id = ANY($1)) AND ($2::timestamptz IS NULL OR (created_at, id) < ($2, $3))
ORDER BY created_at DESC, id DESC
LIMIT $4
