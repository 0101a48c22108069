INSERT INTO counter_generations AS g (limit_id, shape, generation, since_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
ON CONFLICT (limit_id, shape) DO UPDATE SET generation = excluded.generation, since_ms = excluded.since_ms
WHERE excluded.generation > g.generation
