UPDATE reconciliations SET claimed_until = clock_timestamp() + $2::interval
WHERE (tenant, checkpoint_id) IN (
    SELECT tenant, checkpoint_id FROM reconciliations
    WHERE state = 'drift' AND (claimed_until IS NULL OR claimed_until <= clock_timestamp())
    ORDER BY judged_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
RETURNING tenant, checkpoint_id, partition, epoch, sequence, taken_at, judged_at, counters, differences, quarantined,
    parked, gaps, state, detail
