-- Erasing a subject's name: of the policy's history only the name in a subject's place may be replaced, so the service
-- may not change the history itself. `"id"` comes before `"kind"` in every stored object, and nothing between them.
CREATE FUNCTION replace_subject_in_history(whose text, of_kind text, name text, pseudonym text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE policy_history h SET definition = replace(h.definition::text, p.named, p.renamed)::jsonb
    FROM (
        SELECT format('"id": %s, "kind": %s', to_jsonb(name), to_jsonb(of_kind)) AS named,
            format('"id": %s, "kind": %s', to_jsonb(pseudonym), to_jsonb(of_kind)) AS renamed
    ) p
    WHERE h.kind = 'tenant' AND h.id = whose AND position(p.named IN h.definition::text) > 0
$$;
REVOKE EXECUTE ON FUNCTION replace_subject_in_history(text, text, text, text) FROM PUBLIC;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT EXECUTE ON FUNCTION replace_subject_in_history(text, text, text, text) TO tollgate_service;
        GRANT UPDATE (record) ON reservations_archive TO tollgate_service;
    END IF;
END
$$;
