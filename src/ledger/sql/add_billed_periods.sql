-- These periods are billed now, with all documents of their tenants so far.
INSERT INTO billed_periods (tenant, period_end, period_start, last_number)
SELECT done.tenant, done.ended, done.started, coalesce((SELECT max(s.number) FROM statements s WHERE s.tenant = done.tenant), 0)
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS done(tenant, ended, started)
ON CONFLICT DO NOTHING
