-- The grants of these periods, with their cuts. What was consumed of holds that were carried into the period burns
-- nothing of it; what it repaid to the one before has burnt from its start on. What a later period gets of a recurring
-- grant burns from the period's start on, and ends with it. So does what is left of a grant that has come over, until
-- the grant's own end; what returned to it of carried holds burns from the cut on after which it came. What a lowered
-- plan has taken begins at its cut, below zero. Where use was taken back from before a cut, the least counts that was
-- left of it since: what was taken back before place ($5, $6), and where $7 says so only what is settled.
WITH made AS NOT MATERIALIZED (
    SELECT c.tenant, c.grant_id, c.is_end, c.epoch, c.sequence, c.consumed_of_carried, c.is_at_instant,
        least(c.consumed, c.consumed_of_carried + (
            SELECT min(u.consumed) FROM unwindings u
            WHERE u.tenant = c.tenant AND u.meter = c.meter AND u.period_start = c.period_start
                AND (u.epoch, u.sequence) >= (c.epoch, c.sequence) AND (u.epoch, u.sequence) < ($5, $6) AND (u.is_settled OR NOT $7)
        )) AS consumed
    FROM cuts c
)
SELECT g.tenant, g.meter, g.period_start, g.id, g.amount, g.kind, g.priority, g.effective_at, g.created_at,
    CASE g.recurrence WHEN 'period' THEN least(g.expires_at, w.period_end) ELSE g.expires_at END AS expires_at,
    g.voided_at, g.repeats, q.id IS NOT NULL AS is_of_plan, g.goes_on AND g.expires_at > w.period_end AS goes_on,
    g.recurrence = 'period' OR g.repeats IS NOT NULL AS recurs, g.max_rollover, g.min_rollover,
    '{}'::bigint[] AS grow_epochs, '{}'::bigint[] AS grow_sequences, '{}'::numeric[] AS grow_amounts,
    CASE WHEN g.repeats IS NULL THEN b.epoch ELSE 0 END AS begin_epoch,
    CASE WHEN g.repeats IS NULL THEN b.sequence ELSE 0 END AS begin_sequence,
    CASE WHEN g.repeats IS NULL THEN b.consumed + s.repaid - least(b.consumed_of_carried, s.carried_in) ELSE 0 END
        AS begin_consumed,
    e.epoch AS end_epoch, e.sequence AS end_sequence,
    e.consumed + s.repaid - least(e.consumed_of_carried, s.carried_in) AS end_consumed,
    coalesce(b.is_at_instant, false) AS begin_is_at_instant, coalesce(e.is_at_instant, false) AS end_is_at_instant
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
JOIN grants g ON g.tenant = w.tenant AND g.meter = w.meter
    AND g.effective_at >= w.period_start AND g.effective_at < w.period_end
JOIN balances s ON s.tenant = w.tenant AND s.meter = w.meter AND s.period_start = w.period_start
LEFT JOIN quota_changes q ON q.tenant = g.tenant AND q.id = g.id
LEFT JOIN made b ON b.tenant = g.tenant AND b.grant_id = g.id AND NOT b.is_end
LEFT JOIN made e ON e.tenant = g.tenant AND e.grant_id = g.id AND e.is_end AND coalesce(g.voided_at, g.expires_at) < w.period_end
WHERE g.period_start = w.period_start
UNION ALL
SELECT c.tenant, c.meter, c.period_start, g.id, c.amount, g.kind, g.priority, g.effective_at, g.created_at, g.expires_at,
    g.voided_at, NULL, false, g.expires_at > w.period_end, false, g.max_rollover, g.min_rollover, r.epochs, r.sequences, r.amounts, 0, 0, 0, e.epoch, e.sequence,
    e.consumed + s.repaid - least(e.consumed_of_carried, s.carried_in), false, coalesce(e.is_at_instant, false)
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
-- Looked up one by one: a plan that is made while the table is empty would read all of it later.
CROSS JOIN LATERAL (
    SELECT * FROM continued_grants c
    WHERE c.tenant = w.tenant AND c.meter = w.meter AND c.period_start = w.period_start OFFSET 0
) c
JOIN grants g ON g.tenant = c.tenant AND g.id = c.grant_id
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(r.epoch ORDER BY r.epoch, r.sequence), '{}') AS epochs,
        coalesce(array_agg(r.sequence ORDER BY r.epoch, r.sequence), '{}') AS sequences,
        coalesce(array_agg(r.amount ORDER BY r.epoch, r.sequence), '{}') AS amounts
    FROM continued_returns r
    WHERE r.tenant = c.tenant AND r.meter = c.meter AND r.period_start = c.period_start AND r.grant_id = c.grant_id
) r
JOIN balances s ON s.tenant = w.tenant AND s.meter = w.meter AND s.period_start = w.period_start
LEFT JOIN made e ON e.tenant = g.tenant AND e.grant_id = g.id AND e.is_end AND coalesce(g.voided_at, g.expires_at) < w.period_end
UNION ALL
SELECT q.tenant, q.meter, q.period_start, q.id, q.changed, 'promotional', 50::smallint, q.asked_at, q.asked_at,
    w.period_end, NULL, NULL, false, false, false, NULL, 0, '{}', '{}', '{}', e.epoch, e.sequence, e.consumed + s.repaid - least(e.consumed_of_carried, s.carried_in),
    NULL, NULL, NULL, e.is_at_instant, false
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, period_end)
CROSS JOIN LATERAL (
    SELECT * FROM quota_changes q
    WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_start = w.period_start OFFSET 0
) q
JOIN balances s ON s.tenant = w.tenant AND s.meter = w.meter AND s.period_start = w.period_start
JOIN made e ON e.tenant = q.tenant AND e.grant_id = q.id AND e.is_end
WHERE q.changed < 0
