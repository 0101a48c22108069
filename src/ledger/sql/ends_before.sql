-- Grants that had ended in this period by a place of the outbox, below whose end use was taken back there, and whether
-- what they left is booked. Of others nothing changes.
SELECT g.id, c.is_settled
FROM cuts c
JOIN grants g ON g.tenant = c.tenant AND g.id = c.grant_id
WHERE c.tenant = $1 AND c.meter = $2 AND c.period_start = $3 AND c.is_end AND (c.epoch, c.sequence) <= ($4, $5)
    AND (g.settled_amount IS NOT NULL OR NOT c.is_settled)
    AND c.consumed - c.consumed_of_carried > (
        SELECT min(u.consumed) FROM unwindings u
        WHERE u.tenant = c.tenant AND u.meter = c.meter AND u.period_start = c.period_start AND (u.epoch, u.sequence) = ($4, $5)
    )
ORDER BY g.id
