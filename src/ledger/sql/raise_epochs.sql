-- Inserts in one order, so that two instances never wait for each other.
INSERT INTO epochs (partition, epoch, run_id)
SELECT f.partition, f.epoch + 1, $3
FROM unnest($1::smallint[], $2::bigint[]) AS f(partition, epoch)
WHERE f.epoch = (SELECT max(e.epoch) FROM epochs e WHERE e.partition = f.partition)
ORDER BY f.partition
ON CONFLICT DO NOTHING
