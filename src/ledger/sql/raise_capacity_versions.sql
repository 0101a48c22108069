-- A list of two periods carries the later one's version, so that each is raised.
WITH raised AS (
    UPDATE quota_periods SET version = version + 1
    WHERE tenant = $1 AND meter = $2 AND period_end > $3
    RETURNING version
)
INSERT INTO untold_capacities (tenant, meter, version)
SELECT $1, $2, max(version) FROM raised HAVING max(version) IS NOT NULL
ON CONFLICT (tenant, meter) DO UPDATE SET version = greatest(untold_capacities.version, excluded.version)
