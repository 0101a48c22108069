-- What finished work of an operation used, as a sketch for each tenant and meter: a job learns it from resolved reservations.
CREATE TABLE usage_estimates (
    -- Empty for the sketch of all tenants.
    tenant text NOT NULL,
    operation text NOT NULL,
    meter text NOT NULL,
    -- How much of the work used an amount of which bucket.
    buckets smallint[] NOT NULL,
    counts integer[] NOT NULL,
    -- Of the latest work whose holds were estimates: what was held and what it used, in smallest units, the oldest first.
    held bigint[] NOT NULL,
    used bigint[] NOT NULL,
    learned_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, operation, meter),
    CONSTRAINT estimate_buckets_have_counts CHECK (cardinality(buckets) = cardinality(counts)),
    CONSTRAINT estimated_work_has_what_it_used CHECK (cardinality(held) = cardinality(used))
);
CREATE INDEX usage_estimates_latest ON usage_estimates (learned_at);

-- Up to which event of its outbox the work of a tenant is learned, and for which costs: `operation/meter`. The row of the
-- empty tenant is only there to be locked.
CREATE TABLE estimate_marks (
    tenant text PRIMARY KEY,
    learned text[] NOT NULL DEFAULT '{}',
    resolved_at timestamptz NOT NULL DEFAULT 'epoch',
    epoch bigint NOT NULL DEFAULT 0,
    sequence bigint NOT NULL DEFAULT 0
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON usage_estimates, estimate_marks TO tollgate_service;
    END IF;
END
$$;
