-- What was consumed of a quota in a period since a grant of it ended there the last time, without what other
-- adjustments are about to take back; none where none has. An end that is still to be cut waits for these adjustments.
-- What was consumed of carried holds is left out: whether it burns anything here, the close of the period before says.
SELECT (
    min(b.consumed - b.adjusted - b.consumed_of_carried - (e.consumed - e.consumed_of_carried)) + coalesce((
        SELECT sum(amount) FROM adjustments
        WHERE tenant = $1 AND meter = $2 AND gate_period = $3 AND state = 'approved' AND amount < 0 AND id <> $4
    ), 0)
)::numeric(28, 9) AS consumed
FROM cuts e
JOIN grants g ON g.tenant = e.tenant AND g.id = e.grant_id
JOIN balances b ON b.tenant = e.tenant AND b.meter = e.meter AND b.period_start = e.period_start
WHERE e.tenant = $1 AND e.meter = $2 AND e.period_start = $3 AND e.is_end AND coalesce(g.voided_at, g.expires_at) > $3
