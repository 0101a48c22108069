-- The word of the account stays: entries may have it.
SELECT 1;
