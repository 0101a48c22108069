-- Money is booked like units, of the meter `money:` and the currency's code, between accounts of its own.
ALTER TYPE account ADD VALUE IF NOT EXISTS 'receivable';
ALTER TYPE account ADD VALUE IF NOT EXISTS 'revenue';
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
FROM (SELECT *, class = 'usage' AND NOT carried AS by_gate FROM entries WHERE meter NOT LIKE 'money:%') e
GROUP BY tenant, meter, period_start;

-- From when on a version of the policy holds, by the service's clock; none where `changed_at` says it.
ALTER TABLE policy_history ADD COLUMN effective_at timestamptz;

-- What was consumed for closed periods and is booked in later ones: a note to the closed period's statement bills it.
CREATE TABLE corrections (
    tenant text NOT NULL,
    meter text NOT NULL,
    -- The closed period.
    period_start timestamptz NOT NULL,
    -- The start of the period in which it is booked.
    booked_in timestamptz NOT NULL,
    consumed numeric(28, 9) NOT NULL CONSTRAINT correction_is_positive_and_bounded CHECK (consumed > 0 AND consumed < 1e18),
    PRIMARY KEY (tenant, booked_in, meter, period_start)
);
CREATE INDEX corrections_by_period ON corrections (tenant, period_start);

-- Up to when a tenant has statements for what it owes.
CREATE TABLE billing (
    tenant text PRIMARY KEY,
    -- Before the first period is billed: when billing began to look at the tenant.
    billed_until timestamptz NOT NULL,
    -- The start of the first period that is billed.
    begun_at timestamptz,
    -- When to look again: the end of the next period to be billed.
    next_end timestamptz NOT NULL
);
CREATE INDEX billing_by_end ON billing (next_end, tenant);
INSERT INTO billing (tenant, billed_until, next_end) SELECT id, now(), now() FROM tenants;

-- Statements and the notes that correct them, numbered without gaps for each tenant.
CREATE TABLE statements (
    tenant text NOT NULL,
    number bigint NOT NULL CONSTRAINT statements_are_numbered_from_1 CHECK (number > 0),
    -- The statement that a credit note corrects.
    corrects bigint CONSTRAINT note_corrects_an_earlier_statement CHECK (corrects < number),
    period_start timestamptz NOT NULL,
    period_end timestamptz NOT NULL,
    currency text NOT NULL CONSTRAINT statement_currency_is_a_code CHECK (currency ~ '^[A-Z]{3}$'),
    total numeric(28, 9) NOT NULL,
    issued_at timestamptz NOT NULL,
    -- The operation that booked its lines.
    operation_id uuid NOT NULL,
    document text NOT NULL,
    -- Of the tenant's document before and of this one.
    hash bytea NOT NULL CONSTRAINT statement_hash_has_32_bytes CHECK (octet_length(hash) = 32),
    booked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, number)
);
CREATE UNIQUE INDEX statements_once_a_period ON statements (tenant, period_start) WHERE corrects IS NULL;
CREATE INDEX statements_by_corrected ON statements (tenant, corrects) WHERE corrects IS NOT NULL;
CREATE TRIGGER statements_are_never_edited BEFORE UPDATE OR DELETE ON statements FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER statements_are_never_truncated BEFORE TRUNCATE ON statements FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE ON corrections TO %I', role);
        EXECUTE format('GRANT SELECT ON billing TO %I', role);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON billing TO tollgate_service;
        GRANT SELECT, INSERT ON statements TO tollgate_service;
    END IF;
END
$$;
