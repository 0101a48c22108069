-- What time does is decided from rows: when each job is due, and who has claimed which run of it.
CREATE TABLE jobs (
    name text PRIMARY KEY,
    -- Service time, which may be a test clock's.
    next_due timestamptz NOT NULL,
    -- A job that was rung more often than served is due whatever its time.
    rings bigint NOT NULL DEFAULT 0,
    served bigint NOT NULL DEFAULT 0,
    planned_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE job_runs (
    job text NOT NULL,
    scheduled_for timestamptz NOT NULL,
    owner text NOT NULL,
    -- Raised each time another owner takes the run over.
    fence bigint NOT NULL CONSTRAINT job_run_fence_is_positive CHECK (fence > 0),
    lease_until timestamptz NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    succeeded boolean,
    outcome text,
    PRIMARY KEY (job, scheduled_for),
    CONSTRAINT finished_job_run_has_an_outcome CHECK ((finished_at IS NULL) = (outcome IS NULL) AND (finished_at IS NULL) = (succeeded IS NULL))
);
CREATE UNIQUE INDEX job_runs_are_one_at_a_time ON job_runs (job) WHERE finished_at IS NULL;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON jobs, job_runs TO tollgate_service;
        GRANT DELETE ON leases TO tollgate_service;
    END IF;
END
$$;
