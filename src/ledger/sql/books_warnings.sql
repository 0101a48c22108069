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
LIMIT $1
