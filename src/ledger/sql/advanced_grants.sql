-- The grants that are advanced in these periods. They burn from the start on, as once a close has brought them.
SELECT v.tenant, v.meter, v.period_start, g.id, v.amount, g.kind, g.priority, g.effective_at, g.created_at, g.expires_at,
    g.voided_at, NULL::uuid AS repeats, false AS is_of_plan, g.expires_at > w.period_end AS goes_on,
    false AS recurs, g.max_rollover, g.min_rollover,
    '{}'::bigint[] AS grow_epochs, '{}'::bigint[] AS grow_sequences, '{}'::numeric[] AS grow_amounts,
    0::bigint AS begin_epoch, 0::bigint AS begin_sequence, 0::numeric AS begin_consumed,
    NULL::bigint AS end_epoch, NULL::bigint AS end_sequence, NULL::numeric AS end_consumed,
    false AS begin_is_at_instant, false AS end_is_at_instant
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
JOIN grant_advances v ON v.tenant = w.tenant AND v.meter = w.meter AND v.period_start = w.period_start
JOIN grants g ON g.tenant = v.tenant AND g.id = v.grant_id
