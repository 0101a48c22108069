-- Makes the cuts that are due before this event. What is held there is what the gate holds, and what is open of carried
-- holds beyond what the period before pays for. A cut that has a date is in the period around that date.
WITH due AS (
    DELETE FROM due_cuts
    WHERE partition = $1 AND due_at <= $2 AND (epoch, sequence) < ($3, $4)
    RETURNING tenant, grant_id, is_end, meter, period_start, due_at
)
INSERT INTO cuts (tenant, grant_id, is_end, meter, period_start, epoch, sequence, consumed, consumed_of_carried, held, is_settled,
    is_at_instant)
SELECT d.tenant, d.grant_id, d.is_end, d.meter, coalesce(b.period_start, d.period_start), $3, $4, coalesce(b.consumed - b.adjusted, 0),
    coalesce(b.consumed_of_carried, 0),
    coalesce(
        b.reserved - b.reserved_beside_gate
        + greatest(b.reserved_beside_gate - (b.carried_in - least(b.consumed_of_carried, b.carried_in)), 0),
        0
    ),
    false, true
FROM due d
CROSS JOIN LATERAL (SELECT CASE WHEN d.due_at > 'epoch' THEN d.due_at ELSE d.period_start END AS cut_at) c
LEFT JOIN LATERAL (
    SELECT * FROM balances b
    WHERE b.tenant = d.tenant AND b.meter = d.meter AND b.period_start <= c.cut_at AND b.period_end > c.cut_at
    ORDER BY b.period_start DESC
    LIMIT 1
) b ON true
ON CONFLICT DO NOTHING
