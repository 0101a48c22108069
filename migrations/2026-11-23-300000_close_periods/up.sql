-- Periods that are closed, each once. What the close has booked of a period is in the row and in the entries.
CREATE TABLE period_closures (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    period_end timestamptz NOT NULL,
    -- From when on the period counts as closed: its end and the grace.
    closed_at timestamptz NOT NULL,
    lapsed numeric(28, 9) NOT NULL,
    overage numeric(28, 9) NOT NULL,
    booked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, meter, period_start),
    CONSTRAINT closure_amounts_are_bounded CHECK (lapsed >= 0 AND lapsed < 1e18 AND overage >= 0 AND overage < 1e18),
    CONSTRAINT nothing_lapses_beside_overage CHECK (lapsed = 0 OR overage = 0)
);
CREATE INDEX balances_by_end ON balances (period_end, tenant, meter);

-- How a run that somebody asked for is made: as of an instant, without writing.
ALTER TABLE jobs
    ADD COLUMN asked_as_of timestamptz,
    ADD COLUMN asked_dry_run boolean NOT NULL DEFAULT false;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT ON period_closures TO tollgate_service;
    END IF;
END
$$;
