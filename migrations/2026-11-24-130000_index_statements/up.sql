-- Reports add up the statements of all tenants, by the start of their periods.
CREATE INDEX statements_by_period ON statements (period_start);
