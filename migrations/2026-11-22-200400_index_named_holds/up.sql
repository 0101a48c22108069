-- A hold that names no subject is never looked for by one, so it need not be in that index.
DROP INDEX reservations_open_by_subject;
CREATE INDEX reservations_open_by_subject ON reservations USING gin (subjects) WITH (gin_pending_list_limit = 256)
    WHERE state = 'reserved' AND subjects <> '{}';
