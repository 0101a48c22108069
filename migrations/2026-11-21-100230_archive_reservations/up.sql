-- Where resolved reservations go once no repeat of theirs has to be recognised any more. The same key may be used again afterwards, so one id can have several lives here.
CREATE TABLE reservations_archive (LIKE reservations, archived_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (partition, id, tenant, born_at));

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT ON reservations_archive TO tollgate_service;
        GRANT DELETE ON reservations TO tollgate_service;
    END IF;
END
$$;
