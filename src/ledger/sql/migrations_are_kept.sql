SELECT to_regclass('__diesel_schema_migrations') IS NOT NULL AS kept
