ALTER TABLE cursors DROP COLUMN given_up;
