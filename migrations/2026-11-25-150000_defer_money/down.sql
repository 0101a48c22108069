-- The words of the accounts stay: entries may have them.
SELECT 1;
