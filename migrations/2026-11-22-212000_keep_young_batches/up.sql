-- What proves a dropped row must have stood for a day: longer than a proof of the books takes, and long enough for its chain
-- to be anchored outside the ledger.
CREATE FUNCTION batch_witness_age() RETURNS interval LANGUAGE sql IMMUTABLE AS $$ SELECT interval '1 day' $$;

CREATE OR REPLACE FUNCTION refuse_change_of_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.number % 1000 <> 0 AND EXISTS (
        SELECT FROM batches
        WHERE chain = OLD.chain AND number = (OLD.number / 1000 + 1) * 1000 AND booked_at < now() - batch_witness_age()
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% of % is refused: the books are never edited', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;

-- A chain grows at its end only: nobody adds a batch that would let others go.
CREATE FUNCTION refuse_batch_out_of_turn() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.number = coalesce((SELECT max(number) FROM batches WHERE chain = NEW.chain), 0) + 1 THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'batch % of chain % is refused: it does not follow the last one', NEW.number, NEW.chain
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER batches_follow_each_other BEFORE INSERT ON batches FOR EACH ROW EXECUTE FUNCTION refuse_batch_out_of_turn();

CREATE INDEX batches_that_stay ON batches (chain, number) WHERE number % 1000 = 0;
