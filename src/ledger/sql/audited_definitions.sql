SELECT
    (SELECT h.definition FROM policy_history h WHERE h.kind = a.kind AND h.id = a.id AND h.version = a.version) AS after,
    (
        SELECT h.definition FROM policy_history h
        WHERE h.kind = a.kind AND h.id = a.id AND h.version < a.version
        ORDER BY h.version DESC LIMIT 1
    ) AS before
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a (kind, id, version, place)
ORDER BY a.place
