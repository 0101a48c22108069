-- Partitions with cuts that are due and not held up, each with the latest instant of those that end by their date.
SELECT d.partition, max(CASE WHEN d.is_end THEN d.due_at ELSE 'epoch' END) AS ends_at
FROM due_cuts d
WHERE d.due_at <= $2 AND ($1::text IS NULL OR d.tenant = $1) AND NOT (
    d.is_end AND EXISTS (SELECT FROM held_up_ends h WHERE h.tenant = d.tenant AND h.grant_id = d.grant_id)
)
GROUP BY d.partition
ORDER BY d.partition
