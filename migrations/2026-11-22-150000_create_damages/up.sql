-- What was passed over because it cannot be read, by the work that met it, so that an operator learns of it wherever it was met.
CREATE TABLE damages (
    work text NOT NULL,
    item text NOT NULL,
    reason text NOT NULL,
    times bigint NOT NULL DEFAULT 1,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (work, item)
);
CREATE INDEX damages_by_last ON damages (last_at);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON damages TO tollgate_service;
    END IF;
END
$$;
