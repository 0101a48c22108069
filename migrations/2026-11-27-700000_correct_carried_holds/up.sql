-- What was consumed of a hold after it was carried on is corrected by the ledger alone, where it stands.
ALTER TABLE adjustments
    -- The reservation of the carried hold, and what of the amount the period before had paid for.
    ADD COLUMN carried_hold uuid,
    ADD COLUMN paid_before numeric(28, 9) NOT NULL DEFAULT 0,
    ADD CONSTRAINT adjustment_of_a_carried_hold_has_its_paid_part CHECK (
        (paid_before = 0 OR (carried_hold IS NOT NULL AND booked_amount IS NOT NULL AND sign(paid_before) = sign(booked_amount)))
        AND abs(paid_before) <= abs(coalesce(booked_amount, 0)));
CREATE INDEX adjustments_of_carried_holds ON adjustments (tenant, meter, period_start) WHERE carried_hold IS NOT NULL;
ALTER TABLE corrections
    ADD COLUMN paid_before numeric(28, 9) NOT NULL DEFAULT 0
        CONSTRAINT correction_paid_before_is_bounded CHECK (abs(paid_before) < 1e18);
