SELECT s.partition,
    count(s.filter) AS stretches,
    coalesce(sum(length(s.keys) / 8) FILTER (WHERE s.filter IS NOT NULL), 0)::bigint AS keys,
    coalesce(max(f.keys), 0)::bigint AS merged,
    max(f.merged_at) AS merged_at
FROM key_stretches s
LEFT JOIN key_filters f ON f.partition = s.partition
GROUP BY s.partition
ORDER BY s.partition
