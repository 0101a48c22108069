-- The rights that the service's roles lack, as statements that give them; nothing of a role that does not exist. The
-- migrations give these rights too, but only to roles that exist when they run.
WITH of_tables AS (
    SELECT role, right_, object
    FROM (VALUES
        ('writer service', 'SELECT', 'installation epochs tenants policy_history quota_periods losses'),
        ('writer service', 'SELECT', 'balances_by_entries usage_by_entries quota_capacities held_up_ends'),
        ('writer service', 'SELECT', 'balances_by_attached_entries usage_by_attached_entries'),
        ('writer service', 'SELECT', 'carried_holds calendars period_closures jobs billing grant_sales grant_burns'),
        ('writer service', 'SELECT', 'quota_changes openings opening_balances opening_usage opening_operations'),
        ('writer service', 'SELECT', 'opening_chains'),
        ('writer service', 'SELECT INSERT', 'entries batches epoch_ends cuts carried_returns unwindings'),
        ('writer service', 'SELECT INSERT UPDATE', 'balances usage_hourly subjects cursors leases gaps quarantine'),
        ('writer service', 'SELECT INSERT UPDATE', 'repeats corrections untold_capacities'),
        ('writer service', 'SELECT INSERT UPDATE DELETE', 'reservations reservations_open reservations_resolved'),
        ('writer service', 'SELECT INSERT UPDATE DELETE', 'reconciliations'),
        ('writer service', 'SELECT DELETE', 'due_cuts'),
        ('writer', 'SELECT', 'adjustments'),
        ('writer', 'SELECT INSERT', 'booked_keys reservations_archive'),
        ('service', 'SELECT', '__diesel_schema_migrations standing_grants periods_to_advance rolling_grants'),
        ('service', 'SELECT', 'quota_periods_without_balance'),
        ('service', 'SELECT INSERT', 'policy_history audit_log reservations_archive decisions period_closures'),
        ('service', 'SELECT INSERT', 'statements held_parts losses'),
        ('service', 'SELECT UPDATE', 'key_changes key_seal'),
        ('service', 'SELECT INSERT DELETE', 'calendars tenant_currencies booked_keys grant_advances billed_periods'),
        ('service', 'SELECT INSERT UPDATE', 'installation epochs policy_version counter_generations api_keys grants'),
        ('service', 'SELECT INSERT UPDATE', 'rolled_amounts adjustments adjustment_grants destructive_calls'),
        ('service', 'SELECT INSERT UPDATE', 'grant_sales grant_burns plan_changes quota_changes continued_grants'),
        ('service', 'SELECT INSERT UPDATE', 'continued_returns rolled_returns carried_holds unwindings cuts'),
        ('service', 'SELECT INSERT UPDATE DELETE', 'policy_objects tenants quota_periods parked jobs job_runs'),
        ('service', 'SELECT INSERT UPDATE DELETE', 'key_stretches key_filters damages untold_capacities due_cuts'),
        ('service', 'SELECT INSERT UPDATE DELETE', 'quota_notices billing violations pushed_loads usage_estimates'),
        ('service', 'SELECT INSERT UPDATE DELETE', 'estimate_marks upgrade_requests supplier_bills supplier_matches'),
        ('service', 'SELECT INSERT UPDATE DELETE', 'webhooks webhook_deliveries'),
        ('service', 'DELETE', 'repeats leases batches gaps losses quarantine carried_returns')
    ) AS listed(roles, rights, objects),
        unnest(string_to_array(roles, ' ')) AS role,
        unnest(string_to_array(rights, ' ')) AS right_,
        unnest(string_to_array(objects, ' ')) AS object
), of_columns(role, object, field) AS (
    VALUES
        ('writer', 'tenants', 'version'),
        ('writer', 'quota_periods', 'version'),
        ('writer', 'jobs', 'rings'),
        ('service', 'reservations_archive', 'record')
), of_functions(role, object) AS (
    VALUES
        ('writer', 'ensure_entries_month(date)'),
        ('service', 'ensure_entries_month(date)'),
        ('service', 'ensure_decisions_day(date)'),
        ('service', 'drop_decisions_before(date)'),
        ('service', 'replace_subject_in_history(text, text, text, text)')
), existing AS (
    SELECT oid, substr(rolname, length('tollgate_') + 1) AS role, quote_ident(rolname) AS name
    FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service')
)
SELECT format('GRANT USAGE ON SCHEMA %I TO %s', current_schema(), e.name) AS statement
FROM existing e
WHERE NOT has_schema_privilege(e.oid, current_schema(), 'USAGE')
UNION ALL
SELECT format('GRANT %s ON %s TO %s', string_agg(DISTINCT t.right_, ', '), to_regclass(t.object), e.name)
FROM existing e JOIN of_tables t USING (role)
WHERE NOT has_table_privilege(e.oid, to_regclass(t.object), t.right_)
GROUP BY t.object, e.name
UNION ALL
SELECT format('GRANT UPDATE (%I) ON %s TO %s', c.field, to_regclass(c.object), e.name)
FROM existing e JOIN of_columns c USING (role)
WHERE NOT has_column_privilege(e.oid, to_regclass(c.object), c.field, 'UPDATE')
UNION ALL
SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', to_regprocedure(f.object), e.name)
FROM existing e JOIN of_functions f USING (role)
WHERE NOT has_function_privilege(e.oid, to_regprocedure(f.object), 'EXECUTE')
