ALTER TABLE adjustments DROP COLUMN gate_period, DROP COLUMN gate_operation;
ALTER TABLE entries DROP COLUMN corrected;
