-- How busy named parts of an installation are, as admins push it: each holds until its end by the database's clock.
CREATE TABLE pushed_loads (
    name text PRIMARY KEY,
    factor_thousandths smallint NOT NULL
        CONSTRAINT load_is_0_to_1000_thousandths CHECK (factor_thousandths BETWEEN 0 AND 1000),
    ends_at timestamptz NOT NULL
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON pushed_loads TO tollgate_service;
    END IF;
END
$$;
