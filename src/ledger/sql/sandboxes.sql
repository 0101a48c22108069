-- Which of these tenants were sandboxes at these instants, by their places; one that was made later: as it was then.
SELECT w.place
FROM unnest($1::text[], $2::timestamptz[]) WITH ORDINALITY AS w(tenant, at, place)
-- Each looks for one version from an end of the key: a tenant may have ten thousands of them.
JOIN LATERAL (
    SELECT h.definition
    FROM policy_history h
    WHERE h.kind = 'tenant' AND h.id = w.tenant AND h.definition IS NOT NULL
    ORDER BY h.version
    LIMIT 1
) f ON true
LEFT JOIN LATERAL (
    SELECT h.definition
    FROM policy_history h
    WHERE h.kind = 'tenant' AND h.id = w.tenant AND h.definition IS NOT NULL
        AND coalesce(h.effective_at, h.changed_at) <= w.at
    ORDER BY h.version DESC
    LIMIT 1
) l ON true
WHERE (coalesce(l.definition, f.definition) ->> 'sandbox')::boolean
