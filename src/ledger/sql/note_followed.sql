-- The terms of these periods have the changes up to this version of the policy. Those that began long ago follow it no
-- more, and those that are closed.
UPDATE quota_periods q SET followed_version = CASE WHEN q.period_start > $5 THEN $4::bigint END
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_start = w.period_start
