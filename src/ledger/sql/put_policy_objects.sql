INSERT INTO policy_objects (kind, id, version, definition, archived)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::jsonb[], $5::boolean[])
ON CONFLICT (kind, id) DO UPDATE SET
    version = excluded.version,
    definition = excluded.definition,
    archived = excluded.archived,
    updated_at = now()
