DROP TABLE subjects, batches, entries;
DROP FUNCTION ensure_entries_month(date);
DROP FUNCTION refuse_change();
DROP TYPE entry_class;
DROP TYPE account;
