SELECT partition, up_to AS number, true AS is_merged, merged_at AS made_at FROM key_filters
UNION ALL
SELECT partition, number, false, sealed_at FROM key_stretches WHERE filter IS NOT NULL
