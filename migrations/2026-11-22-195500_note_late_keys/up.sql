-- Keys of jobs that were resolved more than a day after their birth, once more: their stretch is as old as their birth, and their row stays for the horizon from its end.
INSERT INTO booked_keys (ids)
SELECT string_agg(uuid_send(id), '') FROM (
    SELECT id, row_number() OVER () / 50000 AS chunk FROM reservations
    WHERE keyed AND resolved_at > born_at + interval '1 day') late
GROUP BY chunk;
