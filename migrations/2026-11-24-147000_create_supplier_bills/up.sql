-- Comparisons of the books with what a supplier charged for, and what they found. The bill itself is not kept.
CREATE TABLE supplier_bills (
    id uuid PRIMARY KEY,
    -- Rises each time the bill is sent again after a failure: the work of an earlier attempt can store nothing.
    attempt integer NOT NULL,
    state text NOT NULL CONSTRAINT supplier_bill_state_is_known CHECK (state IN ('loading', 'matching', 'done', 'failed')),
    -- Of one tenant's use alone, if the bill is.
    tenant text,
    terms jsonb NOT NULL,
    fingerprint bytea NOT NULL,
    -- Of the file, once all of it is read.
    body_hash bytea,
    -- How many rows are read.
    row_count bigint NOT NULL,
    summary jsonb,
    failure text,
    -- Which state of the books was compared.
    compared_at timestamptz,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    finished_at timestamptz,
    -- The instance that works on it has to renew this.
    alive_until timestamptz NOT NULL
);
CREATE INDEX supplier_bills_newest_first ON supplier_bills (created_at DESC, id DESC);

-- What a finished comparison found: uses and rows that belong together. Stored in one transaction with its end.
CREATE TABLE supplier_matches (
    bill uuid NOT NULL,
    outcome text COLLATE "C" NOT NULL
        CONSTRAINT supplier_match_outcome_is_known CHECK (outcome IN ('different', 'matched', 'missing_here', 'missing_there')),
    number bigint NOT NULL,
    tenant text,
    reference text NOT NULL,
    amount_here numeric(28, 9) NOT NULL
        CONSTRAINT supplier_match_amount_here_is_bounded CHECK (amount_here BETWEEN -1e18 AND 1e18),
    amount_there numeric(28, 9) NOT NULL
        CONSTRAINT supplier_match_amount_there_is_bounded CHECK (amount_there BETWEEN -1e18 AND 1e18),
    uses bigint NOT NULL,
    rows_there bigint NOT NULL,
    at_here timestamptz,
    at_there timestamptz,
    -- The first ten of each.
    reservations uuid[] NOT NULL,
    lines bigint[] NOT NULL,
    PRIMARY KEY (bill, outcome, number)
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON supplier_bills, supplier_matches TO tollgate_service;
    END IF;
END
$$;
