-- Holds that are open when their period is closed go over to the next one, where later events of them are booked.
CREATE TABLE carried_holds (
    tenant text NOT NULL,
    meter text NOT NULL,
    -- The closed period.
    period_start timestamptz NOT NULL,
    next_start timestamptz NOT NULL,
    -- What went over; its part that had pushed the period over its quota is charged to the next one.
    held numeric(28, 9) NOT NULL,
    charged numeric(28, 9) NOT NULL,
    -- What of the rest is set against what burns after the included amount, and against that.
    held_after numeric(28, 9) NOT NULL,
    held_of_included numeric(28, 9) NOT NULL,
    -- What else of the included amount was unused, and how much of it may go on at most.
    unused numeric(28, 9) NOT NULL,
    max_rollover numeric(28, 9) NOT NULL,
    -- What has returned by now.
    returned numeric(28, 9) NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, meter, period_start),
    CONSTRAINT carried_amounts_are_bounded CHECK (
        held > 0 AND held < 1e18 AND charged >= 0 AND charged <= held AND held_after >= 0 AND held_of_included >= 0
        AND held_after + held_of_included < 1e18 AND unused >= 0 AND unused < 1e18 AND max_rollover >= 0
        AND max_rollover < 1e18 AND returned >= 0 AND returned < 1e18
    )
);
CREATE INDEX carried_holds_by_next ON carried_holds (tenant, meter, next_start);

-- What returns of carried holds: noted by the writer, booked by the job that closes periods.
CREATE TABLE carried_returns (
    partition smallint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    line smallint NOT NULL,
    tenant text NOT NULL,
    meter text NOT NULL,
    -- The period in which it stands.
    period_start timestamptz NOT NULL,
    period_end timestamptz NOT NULL,
    amount numeric(28, 9) NOT NULL CONSTRAINT return_is_positive_and_bounded CHECK (amount > 0 AND amount < 1e18),
    -- The step of the reservation that returned it.
    reservation_id uuid NOT NULL,
    step bigint NOT NULL,
    happened_at timestamptz NOT NULL,
    operation text NOT NULL,
    hour_at timestamptz NOT NULL,
    subjects bigint[] NOT NULL,
    PRIMARY KEY (partition, epoch, sequence, line)
);
CREATE INDEX carried_returns_of_quota ON carried_returns (tenant, meter, period_start);

-- Whether nothing is booked in the period after its close; older versions booked late facts there.
ALTER TABLE period_closures ADD COLUMN is_final boolean NOT NULL DEFAULT false;

-- What was consumed of holds that were carried into the period: the one before has paid for it.
ALTER TABLE balances ADD COLUMN consumed_of_carried numeric(28, 9) NOT NULL DEFAULT 0;
ALTER TABLE balances
    ADD CONSTRAINT consumption_of_carried_is_bounded CHECK (consumed_of_carried >= 0 AND consumed_of_carried < 1e18) NOT VALID;
ALTER TABLE cuts ADD COLUMN consumed_of_carried numeric(28, 9) NOT NULL DEFAULT 0;
CREATE OR REPLACE VIEW balances_by_entries AS
SELECT tenant, meter, period_start,
    coalesce(sum(amount) FILTER (WHERE credit = 'granted'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'granted'), 0) AS granted,
    coalesce(sum(amount) FILTER (WHERE credit = 'rolled_in'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'rolled_in'), 0) AS rolled_in,
    coalesce(sum(amount) FILTER (WHERE credit = 'carried_in'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'carried_in'), 0) AS carried_in,
    coalesce(sum(amount) FILTER (WHERE credit = 'overage'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'overage'), 0) AS overage,
    coalesce(sum(amount) FILTER (WHERE credit = 'adjusted'), 0) - coalesce(sum(amount) FILTER (WHERE debit = 'adjusted'), 0) AS adjusted,
    coalesce(sum(amount) FILTER (WHERE debit = 'available'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'available'), 0) AS available,
    coalesce(sum(amount) FILTER (WHERE debit = 'reserved'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'reserved'), 0) AS reserved,
    coalesce(sum(amount) FILTER (WHERE debit = 'consumed'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'consumed'), 0) AS consumed,
    coalesce(sum(amount) FILTER (WHERE debit = 'lapsed'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'lapsed'), 0) AS lapsed,
    coalesce(sum(amount) FILTER (WHERE debit = 'voided'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'voided'), 0) AS voided,
    coalesce(sum(amount) FILTER (WHERE debit = 'rolled_out'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'rolled_out'), 0) AS rolled_out,
    coalesce(sum(amount) FILTER (WHERE debit = 'carried_out'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'carried_out'), 0) AS carried_out,
    coalesce(sum(amount) FILTER (WHERE debit = 'repaid'), 0) - coalesce(sum(amount) FILTER (WHERE credit = 'repaid'), 0) AS repaid,
    coalesce(sum(amount) FILTER (WHERE debit = 'reserved' AND NOT by_gate), 0)
        - coalesce(sum(amount) FILTER (WHERE credit = 'reserved' AND NOT by_gate), 0) AS reserved_beside_gate,
    coalesce(sum(amount) FILTER (WHERE debit = 'consumed' AND NOT by_gate), 0)
        - coalesce(sum(amount) FILTER (WHERE credit = 'consumed' AND NOT by_gate), 0) AS consumed_beside_gate,
    coalesce(sum(amount) FILTER (WHERE credit = 'reserved' AND debit = 'consumed' AND carried), 0) AS consumed_of_carried
FROM (SELECT *, class = 'usage' AND NOT carried AS by_gate FROM entries) e
GROUP BY tenant, meter, period_start;

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT, INSERT ON carried_returns TO %I', role);
        EXECUTE format('GRANT SELECT ON carried_holds, calendars, period_closures TO %I', role);
        -- The writer raises the versions of capacities that it changes.
        EXECUTE format('GRANT SELECT, UPDATE (version) ON tenants, quota_periods TO %I', role);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE ON untold_capacities TO %I', role);
        EXECUTE format('GRANT SELECT, UPDATE (rings) ON jobs TO %I', role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT INSERT, UPDATE ON carried_holds TO tollgate_service;
        GRANT DELETE ON carried_returns TO tollgate_service;
    END IF;
END
$$;
