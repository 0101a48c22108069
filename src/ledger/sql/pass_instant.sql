-- Nobody is waited for: neither who books the partition, nor who parks calls of it.
WITH free AS MATERIALIZED (
    SELECT partition FROM cursors WHERE partition = $1 FOR UPDATE SKIP LOCKED
)
UPDATE cursors c SET passed_at = greatest(c.passed_at, $2)
FROM free
WHERE c.partition = free.partition AND pg_try_advisory_xact_lock(hashtext('tollgate parking'), $1::smallint::integer)
