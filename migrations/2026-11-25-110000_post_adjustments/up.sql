-- Corrections that people post. Each one is booked by entries of its own, under its id.
CREATE TABLE adjustments (
    tenant text NOT NULL,
    id uuid NOT NULL,
    meter text NOT NULL,
    effect text NOT NULL CONSTRAINT adjustment_effect_is_known CHECK (effect IN ('usage', 'allowance')),
    amount numeric(28, 9) NOT NULL CONSTRAINT adjustment_moves_a_bounded_amount CHECK (amount <> 0 AND abs(amount) < 1e18),
    happened_at timestamptz NOT NULL,
    -- The operation that it corrects.
    corrects uuid,
    reason text NOT NULL,
    reference text NOT NULL,
    state text NOT NULL CONSTRAINT adjustment_state_is_known CHECK (state IN ('pending', 'approved', 'booked', 'declined')),
    posted_at timestamptz NOT NULL,
    posted_by text NOT NULL,
    decided_at timestamptz,
    decided_by text CONSTRAINT adjustment_is_approved_by_another CHECK (state = 'declined' OR decided_by <> posted_by),
    booked_at timestamptz CONSTRAINT adjustment_is_booked_at_an_instant CHECK ((state = 'booked') = (booked_at IS NOT NULL)),
    -- What was booked: less than the amount where less was left of the grants that it voids.
    booked_amount numeric(28, 9),
    -- Of usage: the start of the closed period that it corrects, and of the one in which it is booked.
    period_start timestamptz,
    booked_in timestamptz,
    PRIMARY KEY (tenant, id),
    CONSTRAINT adjustment_of_usage_names_its_periods CHECK (
        effect <> 'usage' OR ((state = 'booked') = (period_start IS NOT NULL) AND (state = 'booked') = (booked_in IS NOT NULL)))
);
CREATE UNIQUE INDEX adjustments_by_id ON adjustments (id);
CREATE INDEX adjustments_newest_first ON adjustments (posted_at DESC, id DESC);
CREATE INDEX adjustments_of_tenant ON adjustments (tenant, posted_at DESC, id DESC);
CREATE INDEX adjustments_to_carry_out ON adjustments (posted_at, id) WHERE state = 'approved';

-- The grants through which an adjustment of the allowance works, in order: those that it makes, and those that it voids.
CREATE TABLE adjustment_grants (
    tenant text NOT NULL,
    adjustment uuid NOT NULL,
    place smallint NOT NULL,
    grant_id uuid NOT NULL,
    is_voided boolean NOT NULL,
    PRIMARY KEY (tenant, adjustment, place)
);

-- What was consumed or taken back for a closed period, apart from the allowance of the one in which it is booked.
ALTER TABLE corrections
    ADD COLUMN adjusted numeric(28, 9) NOT NULL DEFAULT 0
        CONSTRAINT correction_adjusted_is_bounded CHECK (abs(adjusted) < 1e18),
    DROP CONSTRAINT correction_is_positive_and_bounded,
    ADD CONSTRAINT correction_is_bounded CHECK (consumed >= 0 AND consumed < 1e18);

-- What the ledger alone corrects of an hour's usage.
ALTER TABLE usage_hourly ADD COLUMN corrections numeric(28, 9) NOT NULL DEFAULT 0
    CONSTRAINT usage_corrections_are_bounded CHECK (abs(corrections) < 1e18);
CREATE OR REPLACE VIEW usage_by_entries AS
SELECT tenant, meter, hour_at, operation, subject,
    coalesce(sum(CASE WHEN debit = 'consumed' THEN amount ELSE -amount END) FILTER (WHERE NOT adjusts), 0) AS consumed,
    count(DISTINCT (operation_id, line)) FILTER (WHERE debit = 'consumed' AND NOT adjusts) AS count,
    coalesce(sum(amount) FILTER (WHERE excess), 0) AS excess,
    coalesce(sum(amount) FILTER (WHERE late), 0) AS late,
    coalesce(sum(CASE WHEN debit = 'consumed' THEN amount ELSE -amount END) FILTER (WHERE adjusts), 0) AS corrections
FROM (SELECT *, credit = 'adjusted' OR debit = 'adjusted' AS adjusts FROM entries) e, unnest(0::bigint || subjects) AS named(subject)
WHERE debit = 'consumed' OR credit = 'consumed'
GROUP BY tenant, meter, hour_at, operation, subject;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE ON adjustments, adjustment_grants TO tollgate_service;
    END IF;
END
$$;
