DROP INDEX batches_that_stay;
DROP TRIGGER batches_follow_each_other ON batches;
DROP FUNCTION refuse_batch_out_of_turn();
CREATE OR REPLACE FUNCTION refuse_change_of_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.number % 1000 <> 0
        AND EXISTS (SELECT FROM batches WHERE chain = OLD.chain AND number = (OLD.number / 1000 + 1) * 1000) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% of % is refused: the books are never edited', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
DROP FUNCTION batch_witness_age();
