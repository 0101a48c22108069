ALTER TABLE jobs DROP COLUMN asked_as_of, DROP COLUMN asked_dry_run;
DROP INDEX balances_by_end;
DROP TABLE period_closures;
