-- A job that is due every few seconds leaves many runs that say nothing: they stay for a day.
DELETE FROM job_runs
WHERE (job, scheduled_for) IN (
    SELECT job, scheduled_for FROM job_runs
    WHERE finished_at < clock_timestamp() - $2 * interval '1 day'
        OR (job = 'webhooks' AND finished_at < clock_timestamp() - interval '1 day')
    LIMIT $1
)
