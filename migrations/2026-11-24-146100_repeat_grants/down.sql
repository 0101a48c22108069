ALTER TABLE grants
    DROP COLUMN repeats,
    DROP COLUMN recurrence;
