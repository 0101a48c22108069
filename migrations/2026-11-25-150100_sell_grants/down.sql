CREATE UNIQUE INDEX statements_once_a_period ON statements (tenant, period_start) WHERE corrects IS NULL;
DROP INDEX statements_once_a_period_and_currency;
DELETE FROM adjustments WHERE effect = 'money';
DROP INDEX adjustments_to_bill;
ALTER TABLE adjustments
    DROP CONSTRAINT adjustment_of_units_has_a_meter,
    DROP CONSTRAINT adjustment_of_money_has_a_currency,
    DROP CONSTRAINT adjustment_effect_is_known,
    ADD CONSTRAINT adjustment_effect_is_known CHECK (effect IN ('usage', 'allowance')),
    DROP COLUMN statement,
    DROP COLUMN currency,
    ALTER COLUMN meter SET NOT NULL;
DROP TABLE grant_burns, grant_sales;
ALTER TABLE grants DROP COLUMN currency, DROP COLUMN paid_amount;
