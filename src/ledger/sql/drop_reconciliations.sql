-- Clean comparisons are not dropped here: the writer keeps only each tenant's latest. A drift stays until it is
-- settled.
DELETE FROM reconciliations
WHERE (tenant, checkpoint_id) IN (
    SELECT tenant, checkpoint_id FROM reconciliations
    WHERE state IN ('repaired', 'refused') AND judged_at < clock_timestamp() - $2 * interval '1 day'
    ORDER BY judged_at
    LIMIT $1
)
