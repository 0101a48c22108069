-- Use of an open period that was taken back from before a cut: what the gate had counted fell below what it was there.
-- Cuts never change; each counts as the least that was left of it since.
-- The view held_up_ends is left for instances of the version before, whose ends wait for such corrections.
CREATE TABLE unwindings (
    tenant text NOT NULL,
    -- The operation by which the gate took it back.
    operation_id uuid NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    -- Where the outbox was when it was booked.
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    -- How much was taken back; and what was consumed then, without what was of carried holds.
    amount numeric(28, 9) NOT NULL CONSTRAINT unwound_amount_is_positive_and_bounded CHECK (amount > 0 AND amount < 1e18),
    consumed numeric(28, 9) NOT NULL CONSTRAINT unwound_consumption_is_bounded CHECK (abs(consumed) < 1e18),
    -- Whether what it leaves unburnt of grants that had ended is booked.
    is_settled boolean NOT NULL,
    PRIMARY KEY (tenant, operation_id, meter)
);
CREATE INDEX unwindings_of_quota ON unwindings (tenant, meter, period_start, epoch, sequence);
CREATE INDEX unwindings_to_settle ON unwindings (tenant, meter, period_start) WHERE NOT is_settled;

-- What the gate is to take back bounds capacities.
CREATE INDEX adjustments_taking_back ON adjustments (tenant, meter, gate_period) WHERE state = 'approved' AND amount < 0;

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT, INSERT ON unwindings TO %I', role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT UPDATE ON unwindings TO tollgate_service;
        GRANT UPDATE ON grant_burns TO tollgate_service;
    END IF;
END
$$;
