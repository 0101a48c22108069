-- Leaves out what stands in a period behind one that is not closed, so that no wait of one tenant holds up the others.
SELECT r.epoch, r.sequence, r.line, r.tenant, r.meter, r.period_start, r.period_end, r.amount, r.reservation_id, r.step,
    r.happened_at, r.operation, r.hour_at, r.subjects
FROM carried_returns r
WHERE r.partition = $1 AND NOT EXISTS (
    SELECT FROM (
        SELECT e.period_start FROM balances e
        WHERE e.tenant = r.tenant AND e.meter = r.meter AND e.period_start < r.period_start
        ORDER BY e.period_start DESC
        LIMIT 1
    ) before
    LEFT JOIN period_closures c ON c.tenant = r.tenant AND c.meter = r.meter AND c.period_start = before.period_start
    WHERE c.tenant IS NULL
)
ORDER BY r.epoch, r.sequence, r.line
LIMIT $2
