-- Gives open periods other terms, where they have others.
UPDATE quota_periods q SET included = w.included, max_rollover = w.max_rollover, overdraft = w.overdraft,
    notices_percent = w.notices_percent::smallint[], preserve_overage = w.preserve_overage, min_rollover = w.min_rollover,
    rollover_periods = w.rollover_periods, reroll = w.reroll
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::smallint[], $6::numeric[], $7::numeric[], $8::numeric[], $9::text[],
    $10::boolean[], $11::numeric[], $12::smallint[], $13::boolean[])
    AS w(tenant, meter, period_start, period_end, decimals, included, max_rollover, overdraft, notices_percent, preserve_overage, min_rollover, rollover_periods,
        reroll)
WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_start = w.period_start
    AND (q.included, q.max_rollover, q.overdraft, q.notices_percent, q.preserve_overage, q.min_rollover, q.rollover_periods, q.reroll)
        IS DISTINCT FROM (w.included, w.max_rollover, w.overdraft, w.notices_percent::smallint[], w.preserve_overage, w.min_rollover, w.rollover_periods,
            w.reroll)
RETURNING q.tenant, q.meter, q.period_start
