-- Postgres takes an index of the meter alone for few rows and, until the table is analyzed again, for many: then each
-- look-up of a tenant's balance reads those of all tenants. With the whole key it reads one.
DROP INDEX balances_by_meter;
CREATE INDEX balances_by_meter ON balances (meter, tenant, period_start);
