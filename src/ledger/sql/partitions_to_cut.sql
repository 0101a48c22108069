-- Partitions with cuts that are due, each with the latest instant of those that end by their date.
SELECT d.partition, max(CASE WHEN d.is_end THEN d.due_at ELSE 'epoch' END) AS ends_at
FROM due_cuts d
WHERE d.due_at <= $2 AND ($1::text IS NULL OR d.tenant = $1)
GROUP BY d.partition
ORDER BY d.partition
