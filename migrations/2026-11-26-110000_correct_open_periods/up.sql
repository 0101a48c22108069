-- Use of an open period is corrected through the gate: its entries say so, and the adjustment which operation books it.
ALTER TABLE entries ADD COLUMN corrected boolean NOT NULL DEFAULT false;

ALTER TABLE adjustments
    -- The open period that it corrects, and the operation by which the gate does.
    ADD COLUMN gate_period timestamptz,
    ADD COLUMN gate_operation uuid;
ALTER TABLE adjustments
    ADD CONSTRAINT adjustment_at_the_gate_names_its_operation CHECK ((gate_period IS NULL) = (gate_operation IS NULL)) NOT VALID;
