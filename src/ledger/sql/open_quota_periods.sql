-- A closed period is not opened any more. One that was open before and withdrawn goes on with the steps of its opening,
-- and with a version above that of the period before. One that begins as an approved request brings another plan
-- follows policy too: the request may not be applied yet. One that includes nothing has no entry, and what has no
-- balance is never closed: where something of it may go on, it gets one here, or once it follows policy no more.
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::smallint[], $6::numeric[], $7::numeric[], $8::numeric[], $9::text[],
        $10::boolean[], $11::numeric[], $12::smallint[], $13::boolean[], $14::boolean[], $15::uuid[])
        AS w(tenant, meter, period_start, period_end, decimals, included, max_rollover, overdraft, notices_percent, preserve_overage, min_rollover,
            rollover_periods, reroll, is_ahead, operation_id)
), opened AS (
    INSERT INTO quota_periods (tenant, meter, period_start, period_end, decimals, included, max_rollover, overdraft, notices_percent,
        preserve_overage, min_rollover, rollover_periods, reroll, version, followed_version)
    SELECT w.tenant, w.meter, w.period_start, coalesce(c.first_period_end, w.period_end), w.decimals, w.included, w.max_rollover, w.overdraft,
        w.notices_percent::smallint[], w.preserve_overage, w.min_rollover, w.rollover_periods, w.reroll,
        greatest(extract(epoch FROM w.period_start)::bigint, 1, b.version + 1),
        CASE WHEN w.is_ahead OR EXISTS (
            SELECT FROM upgrade_requests u
            WHERE u.tenant = w.tenant AND u.effective_at <= w.period_start
                AND (u.applied_at IS NULL OR u.applied_at >= w.period_start)
        ) THEN 0 END
    FROM wanted w
    LEFT JOIN calendars c ON c.tenant = w.tenant AND c.from_at = w.period_start
    -- Looked up one by one: a plan that is made while the table is empty would read all of it later.
    LEFT JOIN LATERAL (
        SELECT true AS is_closed FROM period_closures k
        WHERE k.tenant = w.tenant AND k.meter = w.meter AND k.period_start = w.period_start OFFSET 0
    ) k ON true
    LEFT JOIN LATERAL (
        SELECT q.version FROM quota_periods q
        WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_start < w.period_start
        ORDER BY q.period_start DESC
        LIMIT 1
    ) b ON true
    WHERE k.is_closed IS NULL
    ORDER BY w.tenant, w.meter
    ON CONFLICT DO NOTHING
    RETURNING tenant, meter, period_start, period_end,
        included = 0 AND (max_rollover > 0 OR preserve_overage) AND followed_version IS NULL AS needs_balance
), given_balances AS (
    INSERT INTO balances (tenant, meter, period_start, period_end)
    SELECT tenant, meter, period_start, period_end FROM opened
    WHERE needs_balance
    ORDER BY tenant, meter, period_start
    ON CONFLICT DO NOTHING
)
SELECT o.tenant, o.meter, o.period_end, 1 + coalesce((
        SELECT max(e.step) FROM entries e
        WHERE e.tenant = o.tenant AND e.happened_at = o.period_start AND e.operation_id = w.operation_id
    ), 0) AS step
FROM opened o
JOIN wanted w USING (tenant, meter, period_start)
ORDER BY o.tenant, o.meter
