-- What a trial of other limits needs: which reservation a decision is about, its state and expiry after it, and the
-- order of decisions of one instant. Consumes, releases, extends and events of sampled tenants are kept too.
ALTER TABLE decisions
    -- Rises with every decision that one instance keeps.
    ADD COLUMN number bigint NOT NULL DEFAULT 0,
    ADD COLUMN reservation uuid,
    ADD COLUMN state text,
    ADD COLUMN expires_at timestamptz;

ALTER TABLE decisions DROP CONSTRAINT decision_call_is_known;
-- Each day has the constraint as its own too.
DO $$
DECLARE
    day regclass;
BEGIN
    FOR day IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'decisions'::regclass LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS decision_call_is_known', day);
    END LOOP;
END
$$;
ALTER TABLE decisions
    ADD CONSTRAINT decision_call_is_known
        CHECK (call IN ('reserve', 'usage', 'check', 'consume', 'release', 'extend', 'event')),
    ADD CONSTRAINT decision_state_is_known CHECK (state IN ('reserved', 'consumed', 'released', 'expired'));

-- A trial reads one tenant's decisions in their order.
CREATE INDEX decisions_of_tenants ON decisions (tenant, at, number, id);
