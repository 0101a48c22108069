-- A lowered quota as of its cut. What was consumed of carried holds, or adjusted, has burnt nothing; what was repaid
-- has.
SELECT q.period_end, q.included, b.rolled_in, c.epoch, c.sequence,
    c.consumed + b.repaid - least(c.consumed_of_carried, b.carried_in) AS consumed, c.held
FROM quota_changes l
JOIN cuts c ON c.tenant = l.tenant AND c.grant_id = l.id AND c.is_end
JOIN quota_periods q ON q.tenant = l.tenant AND q.meter = l.meter AND q.period_start = l.period_start
JOIN balances b ON b.tenant = l.tenant AND b.meter = l.meter AND b.period_start = l.period_start
WHERE l.tenant = $1 AND l.id = $2
