ALTER TABLE reconciliations DROP COLUMN parked;
