DROP INDEX tenants_with_bans;
DROP INDEX tenants_with_overrides;
