-- Numbers every change of a key, so that an instance asks for what is new instead of the whole table each second.
CREATE TABLE key_changes (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT key_changes_has_one_row CHECK (only_row),
    number bigint NOT NULL
);
ALTER TABLE api_keys ADD COLUMN change bigint NOT NULL DEFAULT 0;
UPDATE api_keys SET change = numbered.change
FROM (SELECT id, row_number() OVER (ORDER BY created_at, id) AS change FROM api_keys) numbered
WHERE api_keys.id = numbered.id;
INSERT INTO key_changes (number) SELECT coalesce(max(change), 0) FROM api_keys;
CREATE UNIQUE INDEX api_keys_by_change ON api_keys (change);

-- The row stays locked until the commit, so that a change is never seen before one with a lower number. A trigger, because
-- a key revoked by hand or by an instance of the version before must be noticed too.
CREATE FUNCTION number_key_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE key_changes SET number = number + 1 RETURNING number INTO NEW.change;
    RETURN NEW;
END
$$;
CREATE TRIGGER key_changes_are_numbered BEFORE INSERT OR UPDATE ON api_keys FOR EACH ROW EXECUTE FUNCTION number_key_change();

-- A row that is gone cannot be asked for: running instances would go on taking the key.
CREATE FUNCTION refuse_key_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: set revoked_at instead', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER keys_are_never_deleted BEFORE DELETE ON api_keys FOR EACH ROW EXECUTE FUNCTION refuse_key_removal();
CREATE TRIGGER keys_are_never_truncated BEFORE TRUNCATE ON api_keys FOR EACH STATEMENT EXECUTE FUNCTION refuse_key_removal();

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, UPDATE ON key_changes TO tollgate_service;
    END IF;
END
$$;
