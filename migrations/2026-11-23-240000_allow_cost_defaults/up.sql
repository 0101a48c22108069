-- Cost defaults are an object of the policy: there is one of them at most.
ALTER TABLE policy_objects
    DROP CONSTRAINT policy_object_kind_is_known,
    ADD CONSTRAINT policy_object_kind_is_known CHECK (kind IN ('meter', 'operation', 'cost_defaults', 'limit', 'plan'));
