UPDATE billing b SET billed_until = done.ended, begun_at = done.begun, next_end = done.next_end
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[]) AS done(tenant, ended, begun, next_end)
WHERE b.tenant = done.tenant
