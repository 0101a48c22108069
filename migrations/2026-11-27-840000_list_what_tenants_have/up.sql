-- Overrides and bans are listed row by row: the tenants that have some are found without reading the others.
CREATE INDEX tenants_with_overrides ON tenants (id) WHERE definition -> 'overrides' <> '[]';
CREATE INDEX tenants_with_bans ON tenants (id) WHERE definition ? 'bans';
