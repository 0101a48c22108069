-- A list of two periods carries the later one's version, so that each is raised.
WITH raised AS (
    UPDATE quota_periods q SET version = version + 1
    FROM unnest($1::text[], $2::text[]) AS w(tenant, meter)
    WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_end > $3
    RETURNING q.tenant, q.meter, q.version
)
INSERT INTO untold_capacities (tenant, meter, version)
SELECT tenant, meter, max(version) FROM raised GROUP BY tenant, meter
ON CONFLICT (tenant, meter) DO UPDATE SET version = greatest(untold_capacities.version, excluded.version)
