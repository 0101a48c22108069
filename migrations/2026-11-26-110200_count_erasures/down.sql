ALTER TABLE cursors DROP COLUMN erasures;
