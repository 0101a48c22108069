DROP TRIGGER closures_mark_balances ON period_closures;
DROP FUNCTION mark_closed_balances();
ALTER TABLE balances DROP COLUMN is_closed;
