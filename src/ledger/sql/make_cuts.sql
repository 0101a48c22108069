-- Makes the cuts that are due. What is held there is what the gate holds, and what is open of carried holds beyond what
-- the period before pays for.
WITH due AS (
    DELETE FROM due_cuts
    WHERE partition = $1 AND due_at <= $2 AND (epoch, sequence) < ($3, $4)
    RETURNING tenant, grant_id, is_end, meter, period_start
)
INSERT INTO cuts (tenant, grant_id, is_end, meter, period_start, epoch, sequence, consumed, consumed_of_carried, held, is_settled)
SELECT d.tenant, d.grant_id, d.is_end, d.meter, d.period_start, $3, $4, coalesce(b.consumed - b.adjusted, 0),
    coalesce(b.consumed_of_carried, 0),
    coalesce(
        b.reserved - b.reserved_beside_gate
        + greatest(b.reserved_beside_gate - (b.carried_in - least(b.consumed_of_carried, b.carried_in)), 0),
        0
    ),
    false
FROM due d
LEFT JOIN balances b USING (tenant, meter, period_start)
ON CONFLICT DO NOTHING
