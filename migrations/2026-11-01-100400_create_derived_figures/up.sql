-- Figures derived from entries, moved in the same transaction and rebuildable from them; and the quotas' periods.
CREATE TABLE balances (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    period_end timestamptz NOT NULL,
    granted numeric(28, 9) NOT NULL DEFAULT 0,
    rolled_in numeric(28, 9) NOT NULL DEFAULT 0,
    carried_in numeric(28, 9) NOT NULL DEFAULT 0,
    overage numeric(28, 9) NOT NULL DEFAULT 0,
    adjusted numeric(28, 9) NOT NULL DEFAULT 0,
    available numeric(28, 9) NOT NULL DEFAULT 0,
    reserved numeric(28, 9) NOT NULL DEFAULT 0,
    consumed numeric(28, 9) NOT NULL DEFAULT 0,
    lapsed numeric(28, 9) NOT NULL DEFAULT 0,
    voided numeric(28, 9) NOT NULL DEFAULT 0,
    rolled_out numeric(28, 9) NOT NULL DEFAULT 0,
    carried_out numeric(28, 9) NOT NULL DEFAULT 0,
    repaid numeric(28, 9) NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, meter, period_start),
    CONSTRAINT balance_amounts_are_bounded CHECK (
        granted < 1e18 AND rolled_in < 1e18 AND carried_in < 1e18 AND overage < 1e18 AND abs(adjusted) < 1e18
        AND abs(available) < 1e18 AND reserved < 1e18 AND consumed < 1e18 AND lapsed < 1e18 AND voided < 1e18
        AND rolled_out < 1e18 AND carried_out < 1e18 AND repaid < 1e18)
);

-- One row for each named subject and one, number 0, without a subject: a tenant's figures read only that one.
CREATE TABLE usage_hourly (
    tenant text NOT NULL,
    meter text NOT NULL,
    hour_at timestamptz NOT NULL,
    operation text NOT NULL,
    subject bigint NOT NULL,
    consumed numeric(28, 9) NOT NULL,
    count bigint NOT NULL,
    excess numeric(28, 9) NOT NULL,
    late numeric(28, 9) NOT NULL,
    PRIMARY KEY (tenant, meter, hour_at, operation, subject),
    CONSTRAINT usage_amounts_are_bounded CHECK (consumed < 1e18 AND excess < 1e18 AND late < 1e18)
);
CREATE INDEX usage_hourly_of_all_tenants ON usage_hourly (hour_at) WHERE subject = 0;

CREATE TABLE quota_periods (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    period_end timestamptz NOT NULL,
    decimals smallint NOT NULL CONSTRAINT quota_decimals_are_0_to_6 CHECK (decimals BETWEEN 0 AND 6),
    included numeric(28, 9) NOT NULL CONSTRAINT quota_included_is_bounded CHECK (included >= 0 AND included < 1e18),
    version bigint NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, meter, period_start),
    CONSTRAINT quota_period_ends_after_it_starts CHECK (period_end > period_start)
);
