SELECT j.name, j.next_due, j.rings > j.served AS is_asked_for,
    r.scheduled_for, r.owner, r.started_at, r.finished_at, r.succeeded, r.outcome,
    r.dry_run, r.done, r.total,
    s.succeeded_at,
    greatest(extract(epoch FROM clock_timestamp() - coalesce(s.succeeded_at, j.planned_at))::bigint, 0) AS unsuccessful_seconds
FROM jobs j
LEFT JOIN LATERAL (
    SELECT * FROM job_runs WHERE job = j.name
    ORDER BY scheduled_for DESC LIMIT 1
) r ON true
LEFT JOIN LATERAL (
    SELECT finished_at AS succeeded_at FROM job_runs WHERE job = j.name AND succeeded AND NOT dry_run
    ORDER BY scheduled_for DESC LIMIT 1
) s ON true
ORDER BY j.name
