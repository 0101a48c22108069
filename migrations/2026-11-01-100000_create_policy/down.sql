DROP TABLE audit_log, api_keys, counter_generations, tenants, policy_history, policy_objects, policy_version, installation;
