SELECT count(*) AS entries, count(*) FILTER (WHERE class <> 'usage') AS kept
FROM entries
WHERE happened_at >= $1 AND happened_at < $2
