-- Whether the next period pays for what was used beyond the quota: fixed when the period opens, as the included amount.
ALTER TABLE quota_periods ADD COLUMN preserve_overage boolean NOT NULL DEFAULT false;

-- What of a closed period's overage the next one has paid for.
ALTER TABLE period_closures ADD COLUMN paid_by_next numeric(28, 9) NOT NULL DEFAULT 0;
ALTER TABLE period_closures
    ADD CONSTRAINT closure_repays_overage CHECK (paid_by_next >= 0 AND paid_by_next <= overage) NOT VALID;
