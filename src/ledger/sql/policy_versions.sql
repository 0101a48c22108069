SELECT version, shared_version, shared_at
FROM policy_version
LEFT JOIN LATERAL (
    SELECT policy_version AS shared_version, changed_at AS shared_at
    FROM policy_history WHERE kind <> 'tenant'
    ORDER BY policy_version DESC LIMIT 1
) shared ON true
