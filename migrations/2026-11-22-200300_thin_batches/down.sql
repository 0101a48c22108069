DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        REVOKE DELETE ON batches FROM tollgate_service;
    END IF;
END
$$;
DROP TRIGGER batches_are_never_edited ON batches;
CREATE TRIGGER batches_are_never_edited BEFORE UPDATE OR DELETE ON batches FOR EACH ROW EXECUTE FUNCTION refuse_change();
DROP FUNCTION refuse_change_of_batch();
