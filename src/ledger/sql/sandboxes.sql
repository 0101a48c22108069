-- Which of these tenants were sandboxes at these instants, by their places; one that was made later: as it was then.
SELECT w.place
FROM unnest($1::text[], $2::timestamptz[]) WITH ORDINALITY AS w(tenant, at, place)
CROSS JOIN LATERAL (
    SELECT h.definition
    FROM (
        SELECT definition, version, coalesce(effective_at, changed_at) <= w.at AS held
        FROM policy_history
        WHERE kind = 'tenant' AND id = w.tenant AND definition IS NOT NULL
    ) h
    ORDER BY h.held DESC, CASE WHEN h.held THEN -h.version ELSE h.version END
    LIMIT 1
) t
WHERE (t.definition ->> 'sandbox')::boolean
