DROP FUNCTION drop_decisions_before(date);
DROP FUNCTION ensure_decisions_day(date);
DROP TABLE decisions;
