-- Findings that are remarkable, but not wrong.
SELECT concat('partition ', partition, ' ', found_epoch, '-', found_sequence) AS what,
    concat('gap: events after ', after_epoch, '-', after_sequence, ' are missing') AS detail
FROM gaps
UNION ALL
SELECT concat('partition ', partition, ' ', epoch, '-', sequence), concat('in quarantine: ', reason)
FROM quarantine WHERE status = 'open'
UNION ALL
SELECT concat('parked ', call, ' ', number, ' of ', tenant),
    concat('reservation ', reservation_id, CASE state WHEN 'waiting' THEN ' waits for the gate' ELSE concat(' conflicts: ', reason) END)
FROM (SELECT * FROM parked WHERE state <> 'done' ORDER BY number LIMIT 100) p
UNION ALL
(
    -- A period after the next one is open: what is left of the grant has waited for all of the next one.
    SELECT concat_ws(' ', 'grant', c.grant_id, 'of', c.tenant, c.meter), 'has ended, and what is left of it waits to be booked for longer than a period'
    FROM cuts c
    JOIN quota_periods q USING (tenant, meter, period_start)
    WHERE c.is_end AND NOT c.is_settled AND EXISTS (
        SELECT FROM quota_periods n WHERE n.tenant = q.tenant AND n.meter = q.meter AND n.period_start > q.period_end
    )
    LIMIT 100
)
UNION ALL
(
    SELECT concat_ws(' ', 'billing of', tenant, period_start AT TIME ZONE 'UTC'),
        'was noted by an instance of an earlier version, or by hand: it does not say what was issued'
    FROM billed_periods
    WHERE last_number IS NULL
    ORDER BY tenant, period_end
    LIMIT 100
)
LIMIT $1
