-- Where resolved reservations go once no repeat of theirs has to be recognised any more.
CREATE TABLE reservations_archive (LIKE reservations, archived_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (partition, id, tenant));
-- Small, and cheap for the writer: what is old lies together.
CREATE INDEX reservations_by_resolution ON reservations USING brin (resolved_at);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT ON reservations_archive TO tollgate_service;
        GRANT DELETE ON reservations TO tollgate_service;
    END IF;
END
$$;
