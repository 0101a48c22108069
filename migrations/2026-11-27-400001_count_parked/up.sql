-- Calls of the tenant that wait for the gate may explain a difference.
ALTER TABLE reconciliations ADD COLUMN parked bigint NOT NULL DEFAULT 0;
