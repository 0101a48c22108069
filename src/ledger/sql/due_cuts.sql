-- The cuts that are due by an instant in partitions that are being booked from these events on. Those that are alike
-- come once: after which earlier place they were wanted decides nothing here.
SELECT DISTINCT d.partition, d.due_at, CASE WHEN l.is_later THEN d.epoch ELSE 0 END AS epoch,
    CASE WHEN l.is_later THEN d.sequence ELSE 0 END AS sequence
FROM due_cuts d
JOIN unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS p(partition, epoch, sequence) ON p.partition = d.partition
CROSS JOIN LATERAL (SELECT (d.epoch, d.sequence) >= (p.epoch, p.sequence) AS is_later) l
WHERE d.due_at <= $4
