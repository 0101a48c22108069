-- Prices are listed with their owners: the tenants that have some of their own are found without reading the others.
CREATE INDEX tenants_with_prices ON tenants (id) WHERE definition ? 'prices';
