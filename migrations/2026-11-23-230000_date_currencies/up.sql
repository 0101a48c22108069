-- A tenant's currency by its dates: one that has booked changes it at the end of its open period.
CREATE TABLE tenant_currencies (
    tenant text NOT NULL,
    from_at timestamptz NOT NULL,
    -- None: the one that the tenant's prices are in.
    currency text CONSTRAINT currency_is_a_code CHECK (currency ~ '^[A-Z]{3}$'),
    PRIMARY KEY (tenant, from_at)
);
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, DELETE ON tenant_currencies TO tollgate_service;
    END IF;
END
$$;
