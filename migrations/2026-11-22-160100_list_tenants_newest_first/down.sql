DROP INDEX tenants_newest_first;
