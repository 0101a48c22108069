-- Inserts in one order, so that two instances never wait for each other. An epoch that the memory has and the ledger
-- has lost is issued too: events of it are still to be booked.
INSERT INTO epochs (partition, epoch, run_id)
SELECT f.partition, issued.epoch, $3
FROM unnest($1::smallint[], $2::bigint[], $4::bigint[]) AS f(partition, epoch, found)
CROSS JOIN generate_series(greatest(f.epoch, f.found - 1000) + 1, greatest(f.epoch, f.found) + 1) AS issued(epoch)
WHERE f.epoch = (SELECT max(e.epoch) FROM epochs e WHERE e.partition = f.partition)
ORDER BY f.partition, issued.epoch
ON CONFLICT DO NOTHING
