-- Whether a balance's period is closed, so that nobody who looks for open ones reads all that ever was. What stands
-- here counts as closed until the next step has found what is not.
ALTER TABLE balances ADD COLUMN is_closed boolean NOT NULL DEFAULT true;
ALTER TABLE balances ALTER COLUMN is_closed SET DEFAULT false;

-- Instances of every version note closures here.
CREATE FUNCTION mark_closed_balances() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE balances b SET is_closed = true
    FROM closed c
    WHERE b.tenant = c.tenant AND b.meter = c.meter AND b.period_start = c.period_start AND NOT b.is_closed;
    RETURN NULL;
END
$$;
CREATE TRIGGER closures_mark_balances AFTER INSERT ON period_closures
REFERENCING NEW TABLE AS closed FOR EACH STATEMENT EXECUTE FUNCTION mark_closed_balances();
