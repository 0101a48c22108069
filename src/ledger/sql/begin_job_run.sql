-- A job that is rung twice at one instant of a stopped clock still gets a time of its own for each run.
INSERT INTO job_runs (job, scheduled_for, owner, fence, lease_until, dry_run)
SELECT $1,
    greatest(least($4::timestamptz, $5::timestamptz), (SELECT max(scheduled_for) + interval '1 microsecond' FROM job_runs WHERE job = $1)),
    $2, 1, clock_timestamp() + $3::interval, $6::boolean
WHERE NOT EXISTS (SELECT FROM job_runs WHERE job = $1 AND finished_at IS NULL)
RETURNING scheduled_for, fence
