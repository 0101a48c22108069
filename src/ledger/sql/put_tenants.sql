INSERT INTO tenants (id, partition, version, definition, archived, counter_resets)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::bigint[], $4::jsonb[], $5::boolean[], $6::jsonb[])
ON CONFLICT (id) DO UPDATE SET
    version = excluded.version,
    definition = excluded.definition,
    archived = excluded.archived,
    counter_resets = excluded.counter_resets,
    updated_at = now()
