ALTER TABLE parked DROP COLUMN delivered_in;
