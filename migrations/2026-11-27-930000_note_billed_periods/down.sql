DROP TRIGGER billing_forgets_billed_periods ON billing;
DROP TRIGGER billing_notes_billed_periods ON billing;
DROP FUNCTION note_billed_period();
DROP TABLE billed_periods;
