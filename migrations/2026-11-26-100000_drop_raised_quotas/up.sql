-- What plans have raised quotas to is in quota_changes: no released version writes this table.
DROP TABLE raised_quotas;
