-- Tenants with calls that were taken before these instants while the gate was away, and that it does not have yet.
SELECT DISTINCT w.tenant
FROM unnest($1::text[], $2::timestamptz[]) AS w(tenant, closed_at)
JOIN parked p ON p.tenant = w.tenant AND p.state = 'waiting' AND p.taken_at < w.closed_at
