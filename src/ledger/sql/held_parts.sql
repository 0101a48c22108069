-- What the holds are set against that the closes of these periods have carried, in burn order.
SELECT h.tenant, h.meter, h.period_start, h.held, h.fate, h.ends_at, h.periods_left, h.grant_id,
    h.max_rollover, h.min_rollover, h.unused
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN held_parts h USING (tenant, meter, period_start)
ORDER BY h.tenant, h.meter, h.period_start, h.place
