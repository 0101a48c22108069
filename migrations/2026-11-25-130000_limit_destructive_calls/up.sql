-- How many calls that destroy something each key has made since its minute began, over all instances.
CREATE TABLE destructive_calls (
    key_id text PRIMARY KEY,
    since timestamptz NOT NULL,
    calls bigint NOT NULL CONSTRAINT destructive_calls_are_counted CHECK (calls > 0)
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE ON destructive_calls TO tollgate_service;
    END IF;
END
$$;
