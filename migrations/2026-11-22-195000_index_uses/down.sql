DROP INDEX quarantine_open_by_tenant;
DROP INDEX balances_by_meter;
