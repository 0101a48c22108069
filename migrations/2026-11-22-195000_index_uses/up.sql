-- A change of a meter, and the deletion of a meter or a tenant, ask whether anything is booked on it or waits to be.
CREATE INDEX balances_by_meter ON balances (meter);
CREATE INDEX quarantine_open_by_tenant ON quarantine (tenant) WHERE status = 'open';
