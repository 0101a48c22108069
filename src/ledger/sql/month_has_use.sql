-- Whether entries of this month would leave the books with it.
SELECT EXISTS (SELECT FROM entries WHERE happened_at >= $1 AND happened_at < $2 AND class = 'usage') AS has_use
