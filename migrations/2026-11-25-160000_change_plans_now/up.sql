-- A plan that holds now changes what open periods include: by a grant of the difference, or by a void of it.
CREATE TABLE plan_changes (
    tenant text NOT NULL,
    id uuid NOT NULL,
    plan text NOT NULL,
    -- From when on quotas follow the plan; NULL: at once where it includes more.
    plan_from text CONSTRAINT plan_holds_from_a_known_time CHECK (plan_from IN ('now', 'next_period')),
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    -- When the quotas had followed.
    applied_at timestamptz,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX plan_changes_to_apply ON plan_changes (changed_at, id) WHERE applied_at IS NULL;

CREATE TABLE quota_changes (
    tenant text NOT NULL,
    -- The id of the grant that raises, or of the operation that lowers.
    id uuid NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    -- Above zero it is granted; below zero so much is voided, as far as it is available.
    amount numeric(28, 9) NOT NULL CONSTRAINT quota_change_is_bounded CHECK (amount <> 0 AND abs(amount) < 1e18),
    -- What it came to; NULL while it is under way.
    changed numeric(28, 9),
    asked_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id),
    CONSTRAINT quota_change_is_within_the_amount CHECK (changed * sign(amount) >= 0 AND abs(changed) <= abs(amount))
);
CREATE INDEX quota_changes_of_quota ON quota_changes (tenant, meter, period_start);
CREATE INDEX quota_changes_under_way ON quota_changes (tenant, asked_at, id) WHERE changed IS NULL;

-- What open periods were raised to so far. The table stays for versions that still write to it.
INSERT INTO quota_changes (tenant, id, meter, period_start, amount, changed, asked_at)
SELECT r.tenant, gen_random_uuid(), r.meter, r.period_start, r.included - q.included, r.included - q.included, q.period_start
FROM raised_quotas r
JOIN quota_periods q USING (tenant, meter, period_start)
WHERE r.included > q.included;

-- What was held of the quota at a cut, without what the period before pays for.
ALTER TABLE cuts ADD COLUMN held numeric(28, 9) NOT NULL DEFAULT 0;
ALTER TABLE cuts ADD CONSTRAINT cut_holds_are_bounded CHECK (abs(held) < 1e18) NOT VALID;

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT ON quota_changes TO %I', role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE ON plan_changes, quota_changes TO tollgate_service;
    END IF;
END
$$;
