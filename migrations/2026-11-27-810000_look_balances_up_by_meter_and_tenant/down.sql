DROP INDEX balances_by_meter;
CREATE INDEX balances_by_meter ON balances (meter);
