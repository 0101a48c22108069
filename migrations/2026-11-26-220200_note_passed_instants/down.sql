ALTER TABLE cursors DROP COLUMN passed_at;
