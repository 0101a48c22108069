-- Grants that are given once and last longer than the period in which they begin: what is left of one goes on.
ALTER TABLE grants ADD COLUMN goes_on boolean NOT NULL DEFAULT false;
ALTER TABLE grants
    ADD CONSTRAINT grant_that_goes_on_is_given_once CHECK (NOT goes_on OR recurrence = 'none' AND repeats IS NULL) NOT VALID;
CREATE INDEX grants_that_go_on ON grants (tenant, meter, period_start) WHERE goes_on AND settled_at IS NULL;
-- Their end cuts are due as long as they stand: looking for what is due now must not read them all.
CREATE INDEX due_cuts_by_time ON due_cuts (due_at);

-- What of them stands in later periods.
CREATE TABLE continued_grants (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    grant_id uuid NOT NULL,
    amount numeric(28, 9) NOT NULL,
    -- What of it was unused in the period before: the rest returned of carried holds.
    rolled numeric(28, 9) NOT NULL,
    PRIMARY KEY (tenant, meter, period_start, grant_id),
    CONSTRAINT continued_amount_is_bounded CHECK (rolled >= 0 AND rolled <= amount AND amount < 1e18)
);
CREATE UNIQUE INDEX continued_grants_of_grant ON continued_grants (tenant, grant_id, period_start);

-- What returned to them there of carried holds, by the cut after which it came; zeros before the first one.
CREATE TABLE continued_returns (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    grant_id uuid NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    amount numeric(28, 9) NOT NULL CONSTRAINT continued_return_is_bounded CHECK (amount > 0 AND amount < 1e18),
    PRIMARY KEY (tenant, meter, period_start, grant_id, epoch, sequence)
);

-- The same of amounts that rolled over; what returned before this step has none: it burns from the period's start on.
CREATE TABLE rolled_returns (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    amount numeric(28, 9) NOT NULL CONSTRAINT rolled_return_is_bounded CHECK (amount > 0 AND amount < 1e18),
    PRIMARY KEY (tenant, meter, period_start, ends_at, epoch, sequence)
);

-- The periods in which they stand, as long as they have not ended.
CREATE VIEW standing_grants AS
SELECT tenant, meter, period_start, id AS grant_id, expires_at, voided_at
FROM grants WHERE goes_on AND settled_at IS NULL
UNION ALL
SELECT c.tenant, c.meter, c.period_start, c.grant_id, g.expires_at, g.voided_at
FROM continued_grants c
JOIN grants g ON g.tenant = c.tenant AND g.id = c.grant_id
WHERE g.settled_at IS NULL;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE ON continued_grants, continued_returns, rolled_returns TO tollgate_service;
        GRANT SELECT ON standing_grants TO tollgate_service;
    END IF;
END
$$;
