DELETE FROM policy_objects WHERE kind = 'cost_defaults';
ALTER TABLE policy_objects
    DROP CONSTRAINT policy_object_kind_is_known,
    ADD CONSTRAINT policy_object_kind_is_known CHECK (kind IN ('meter', 'operation', 'limit', 'plan'));
