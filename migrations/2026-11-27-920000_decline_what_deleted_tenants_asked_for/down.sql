-- What is declined stays so.
SELECT 1;
