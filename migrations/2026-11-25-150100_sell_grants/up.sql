-- Grants with a price, and adjustments of money: booked when they are made, and put on the next statement.
ALTER TABLE grants
    ADD COLUMN paid_amount numeric(28, 9),
    ADD COLUMN currency text;
ALTER TABLE grants
    ADD CONSTRAINT grant_price_is_positive_and_bounded CHECK (paid_amount > 0 AND paid_amount < 1e18) NOT VALID,
    ADD CONSTRAINT grant_price_has_a_currency CHECK ((paid_amount IS NULL) = (currency IS NULL)) NOT VALID;

-- What was sold: grants with a price, but for those of sandboxes.
CREATE TABLE grant_sales (
    tenant text NOT NULL,
    grant_id uuid NOT NULL,
    meter text NOT NULL,
    amount numeric(28, 9) NOT NULL CONSTRAINT sold_amount_is_positive_and_bounded CHECK (amount > 0 AND amount < 1e18),
    price numeric(28, 9) NOT NULL CONSTRAINT sale_price_is_positive_and_bounded CHECK (price > 0 AND price < 1e18),
    currency text NOT NULL CONSTRAINT sale_currency_is_a_code CHECK (currency ~ '^[A-Z]{3}$'),
    sold_at timestamptz NOT NULL,
    -- The billing period in which it was sold.
    period_start timestamptz NOT NULL,
    period_end timestamptz NOT NULL,
    -- The number of the statement that has it.
    statement bigint,
    -- Whether the grant has ended: nothing of the price is deferred any more.
    is_over boolean NOT NULL DEFAULT false,
    -- What was given back when the grant was voided, when that was, and the number of the note that has it.
    refunded numeric(28, 9) CONSTRAINT refund_is_at_most_the_price CHECK (refunded >= 0 AND refunded <= price),
    refunded_at timestamptz,
    note bigint,
    PRIMARY KEY (tenant, grant_id),
    CONSTRAINT refund_has_an_instant CHECK ((refunded IS NULL) = (refunded_at IS NULL))
);
CREATE INDEX grant_sales_to_bill ON grant_sales (tenant, period_start) WHERE statement IS NULL;
CREATE INDEX grant_sales_deferred ON grant_sales (tenant, meter) WHERE NOT is_over;
CREATE INDEX grant_refunds_to_bill ON grant_sales (tenant) WHERE refunded > 0 AND note IS NULL;

-- What has burnt of a sold grant in a period, what was earned by that, and what was forfeited when it lapsed.
CREATE TABLE grant_burns (
    tenant text NOT NULL,
    grant_id uuid NOT NULL,
    period_start timestamptz NOT NULL,
    amount numeric(28, 9) NOT NULL CONSTRAINT burnt_amount_is_bounded CHECK (amount >= 0 AND amount < 1e18),
    recognised numeric(28, 9) NOT NULL CONSTRAINT recognised_amount_is_bounded CHECK (recognised >= 0 AND recognised < 1e18),
    forfeited numeric(28, 9) NOT NULL CONSTRAINT forfeited_amount_is_bounded CHECK (forfeited >= 0 AND forfeited < 1e18),
    PRIMARY KEY (tenant, grant_id, period_start)
);
CREATE INDEX grant_burns_by_period ON grant_burns (period_start);

ALTER TABLE adjustments
    ALTER COLUMN meter DROP NOT NULL,
    ADD COLUMN currency text,
    -- Of money: the number of the statement that has it.
    ADD COLUMN statement bigint,
    DROP CONSTRAINT adjustment_effect_is_known,
    ADD CONSTRAINT adjustment_effect_is_known CHECK (effect IN ('usage', 'allowance', 'money')) NOT VALID,
    ADD CONSTRAINT adjustment_of_money_has_a_currency CHECK ((effect = 'money') = (currency IS NOT NULL)) NOT VALID,
    ADD CONSTRAINT adjustment_of_units_has_a_meter CHECK (effect = 'money' OR meter IS NOT NULL) NOT VALID;
CREATE INDEX adjustments_to_bill ON adjustments (tenant, booked_in) WHERE effect = 'money' AND state = 'booked' AND statement IS NULL;

-- A period has a statement for each currency in which something is owed.
CREATE UNIQUE INDEX statements_once_a_period_and_currency ON statements (tenant, period_start, currency) WHERE corrects IS NULL;
DROP INDEX statements_once_a_period;

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT ON grant_sales, grant_burns TO %I', role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT INSERT, UPDATE ON grant_sales TO tollgate_service;
        GRANT INSERT ON grant_burns TO tollgate_service;
    END IF;
END
$$;
