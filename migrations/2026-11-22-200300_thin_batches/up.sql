-- A batch's row repeats what its entries say, and its hash goes into the next: once the next thousandth batch stands, rows
-- before it may go. Nothing else of the books may.
CREATE FUNCTION refuse_change_of_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.number % 1000 <> 0
        AND EXISTS (SELECT FROM batches WHERE chain = OLD.chain AND number = (OLD.number / 1000 + 1) * 1000) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% of % is refused: the books are never edited', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
DROP TRIGGER batches_are_never_edited ON batches;
CREATE TRIGGER batches_are_never_edited BEFORE UPDATE OR DELETE ON batches FOR EACH ROW EXECUTE FUNCTION refuse_change_of_batch();

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT DELETE ON batches TO tollgate_service;
    END IF;
END
$$;
