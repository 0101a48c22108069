-- Every reading of the policy, and every change of a tenant, asks when anything but a tenant was changed last.
CREATE INDEX policy_history_of_shared_objects ON policy_history (policy_version) WHERE kind <> 'tenant';
