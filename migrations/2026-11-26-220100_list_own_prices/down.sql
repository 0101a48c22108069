DROP INDEX tenants_with_prices;
