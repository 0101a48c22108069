DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        REVOKE UPDATE (record) ON reservations_archive FROM tollgate_service;
    END IF;
END
$$;
DROP FUNCTION replace_subject_in_history(text, text, text, text);
