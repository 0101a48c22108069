-- The month's entries as lines of a file, in the order in which their batches were hashed.
SELECT concat_ws(
    ',', tenant, operation_id, step, line, leg, meter, to_char(period_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    credit, debit, amount, class, excess, late, carried, degraded, corrected,
    to_char(happened_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    to_char(booked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), operation,
    to_char(hour_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), array_to_string(subjects, ' '), chain, batch
) AS text
FROM entries
WHERE happened_at >= $1 AND happened_at < $2
ORDER BY chain, batch, tenant COLLATE "C", operation_id, step, line, leg, happened_at
