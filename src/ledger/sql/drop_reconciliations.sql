-- Of clean comparisons the writer keeps each tenant's latest; a drift waits for its repair.
DELETE FROM reconciliations
WHERE (tenant, checkpoint_id) IN (
    SELECT tenant, checkpoint_id FROM reconciliations
    WHERE state IN ('repaired', 'refused') AND judged_at < clock_timestamp() - $2 * interval '1 day'
    ORDER BY judged_at
    LIMIT $1
)
