INSERT INTO entries (tenant, operation_id, step, line, leg, meter, period_start, credit, debit, amount, class,
    excess, late, carried, degraded, happened_at, booked_at, operation, hour_at, subjects, chain, batch, corrected)
SELECT tenant, operation_id, step, line, leg, meter, period_start, credit, debit, amount, class,
    excess, late, carried, degraded, happened_at, $2::timestamptz, operation, hour_at, subjects, chain, batch, corrected
FROM ROWS FROM (unnest($1::booked_entry[]), unnest($3::boolean[])) AS booked(
    tenant, operation_id, step, line, leg, meter, period_start, credit, debit, amount, class,
    excess, late, carried, degraded, happened_at, operation, hour_at, subjects, chain, batch, corrected
)
