-- A version that was raised since is still to be delivered.
DELETE FROM untold_capacities u
USING unnest($1::text[], $2::text[], $3::bigint[]) AS w(tenant, meter, version)
WHERE u.tenant = w.tenant AND u.meter = w.meter AND u.version <= w.version
