DROP INDEX statements_by_period;
