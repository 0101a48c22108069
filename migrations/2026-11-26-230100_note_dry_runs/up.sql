-- A dry run does nothing that a job is watched for: it is no success. And how far a run is that says so.
ALTER TABLE job_runs
    ADD COLUMN dry_run boolean NOT NULL DEFAULT false,
    ADD COLUMN done bigint,
    ADD COLUMN total bigint,
    ADD CONSTRAINT job_run_is_so_far_of_something CHECK ((done IS NULL) = (total IS NULL));
UPDATE job_runs SET dry_run = true WHERE job IN ('close', 'statements') AND outcome LIKE 'would %';
