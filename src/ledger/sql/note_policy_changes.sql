WITH changes AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::jsonb[]) AS c (kind, id, version, definition)
), history AS (
    INSERT INTO policy_history (kind, id, version, policy_version, definition, effective_at)
    SELECT kind, id, version, $5, definition, $7 FROM changes
)
INSERT INTO audit_log (actor, action, object, detail)
SELECT $6,
    CASE WHEN definition IS NULL THEN 'delete' ELSE 'put' END,
    kind || ' ' || id,
    jsonb_build_object('version', version)
FROM changes
