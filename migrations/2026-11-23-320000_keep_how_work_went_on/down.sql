DROP INDEX decisions_of_tenants;
DELETE FROM decisions WHERE call NOT IN ('reserve', 'usage', 'check');
ALTER TABLE decisions DROP CONSTRAINT decision_call_is_known, DROP CONSTRAINT decision_state_is_known;
DO $$
DECLARE
    day regclass;
BEGIN
    FOR day IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'decisions'::regclass LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS decision_call_is_known, '
            'DROP CONSTRAINT IF EXISTS decision_state_is_known', day);
    END LOOP;
END
$$;
ALTER TABLE decisions
    ADD CONSTRAINT decision_call_is_known CHECK (call IN ('reserve', 'usage', 'check')),
    DROP COLUMN number, DROP COLUMN reservation, DROP COLUMN state, DROP COLUMN expires_at;
