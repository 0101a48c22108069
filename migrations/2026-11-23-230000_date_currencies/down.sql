DROP TABLE tenant_currencies;
