-- The grants of these periods, with their cuts. What was consumed of holds that were carried into the period burns
-- nothing of it; what it repaid to the one before has burnt from its start on.
SELECT g.tenant, g.meter, g.period_start, g.id, g.amount, g.kind, g.priority, g.effective_at, g.expires_at, g.created_at,
    g.voided_at IS NOT NULL AS is_voided,
    b.epoch AS begin_epoch, b.sequence AS begin_sequence,
    b.consumed + s.repaid - least(b.consumed_of_carried, s.carried_in) AS begin_consumed,
    e.epoch AS end_epoch, e.sequence AS end_sequence,
    e.consumed + s.repaid - least(e.consumed_of_carried, s.carried_in) AS end_consumed
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
JOIN grants g ON g.tenant = w.tenant AND g.meter = w.meter
    AND g.effective_at >= w.period_start AND g.effective_at < w.period_end
JOIN balances s ON s.tenant = w.tenant AND s.meter = w.meter AND s.period_start = w.period_start
LEFT JOIN cuts b ON b.tenant = g.tenant AND b.grant_id = g.id AND NOT b.is_end
LEFT JOIN cuts e ON e.tenant = g.tenant AND e.grant_id = g.id AND e.is_end
WHERE g.period_start = w.period_start
