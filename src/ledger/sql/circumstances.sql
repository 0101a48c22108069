SELECT
    (
        SELECT count(*) FROM quarantine
        WHERE status = 'open' AND (tenant = $1 OR (tenant IS NULL AND partition = $2))
    ) AS quarantined,
    (SELECT count(*) FROM parked WHERE tenant = $1 AND state = 'waiting') AS parked,
    (SELECT count(*) FROM gaps WHERE partition = $2 AND found_epoch = $3) AS gaps,
    EXISTS (
        SELECT FROM repeats
        WHERE tenant = $1 AND epoch = $3 AND sequence < $4 AND (undone_sequence IS NULL OR undone_sequence >= $4)
    ) AS repeats_wait,
    coalesce((SELECT t.version <> $5 FROM tenants t WHERE t.id = $1), true)
        OR EXISTS (SELECT FROM policy_history WHERE policy_version > $6 AND kind <> 'tenant') AS policy_changed
