WITH wanted AS (
    SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::boolean[]) w(partition, number, is_merged)
)
SELECT partition, number, is_merged, merged_at AS made_at, filter
FROM key_filters f JOIN wanted w USING (partition)
WHERE w.is_merged AND w.number = f.up_to
UNION ALL
SELECT partition, number, is_merged, sealed_at, filter
FROM key_stretches s JOIN wanted w USING (partition, number)
WHERE NOT w.is_merged AND s.filter IS NOT NULL
