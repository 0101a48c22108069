-- Grants that have ended after more was consumed than there is: what was taken back from before an end was not noted.
SELECT concat_ws(' ', 'grant', c.grant_id, 'of', c.tenant, c.meter) AS what,
    concat('ended after ', l.consumed, ' were consumed, of which ', b.consumed - b.adjusted - b.consumed_of_carried, ' are left') AS detail
FROM cuts c
JOIN grants g ON g.tenant = c.tenant AND g.id = c.grant_id AND g.settled_amount IS NOT NULL
JOIN balances b ON b.tenant = c.tenant AND b.meter = c.meter AND b.period_start = c.period_start
CROSS JOIN LATERAL (
    SELECT least(c.consumed - c.consumed_of_carried, min(u.consumed)) AS consumed FROM unwindings u
    WHERE u.tenant = c.tenant AND u.meter = c.meter AND u.period_start = c.period_start
        AND (u.epoch, u.sequence) >= (c.epoch, c.sequence)
) l
WHERE c.tenant = ANY($1) AND c.is_end AND l.consumed > b.consumed - b.adjusted - b.consumed_of_carried
ORDER BY 1
LIMIT $2
