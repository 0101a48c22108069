-- Raises and resolves the notices of a page of quotas, from what is booked, with a delivery of each to each webhook
-- that wants it. A threshold holds at or above it. The forecast holds once a tenth of the period is over and what was
-- used until now would be more than all at its end. Grants that go on count before a close brings them. With its period
-- a notice ends. What is found reached only then is over as it is raised; what the close has settled counts as it was
-- before, and a closed period is not looked at again. Of holds that were carried over counts what the period before
-- does not pay for, and what has returned of them.
WITH page AS (
    SELECT tenant, meter, period_start, period_end, notices_percent, period_end <= $1 AS is_over FROM quota_periods
    WHERE NOT notices_ended AND period_start <= $1
        AND ($2::text IS NULL OR (tenant, meter, period_start) > ($2, $3::text, $4::timestamptz))
    ORDER BY tenant, meter, period_start
    LIMIT $5
), figures AS (
    SELECT p.*, b.consumed - b.adjusted - least(b.consumed_of_carried, b.carried_in) AS consumed,
        b.available + b.reserved + b.consumed - b.adjusted + coalesce(a.amount, 0)
            + coalesce(c.lapsed, 0) + b.rolled_out + b.carried_out - b.overage
            - least(greatest(b.reserved_beside_gate, 0) + b.consumed_of_carried, b.carried_in) AS allowance,
        extract(epoch FROM $1 - p.period_start) AS passed_s, extract(epoch FROM p.period_end - p.period_start) AS whole_s
    FROM page p
    JOIN balances b USING (tenant, meter, period_start)
    LEFT JOIN period_closures c USING (tenant, meter, period_start)
    LEFT JOIN LATERAL (
        SELECT sum(v.amount) AS amount FROM grant_advances v
        WHERE v.tenant = p.tenant AND v.meter = p.meter AND v.period_start = p.period_start
    ) a ON true
), due AS (
    SELECT f.*, t.percent,
        CASE WHEN t.percent > 0 THEN f.consumed * 100 >= t.percent * f.allowance
            ELSE f.consumed * f.whole_s > f.allowance * f.passed_s END AS holds
    FROM figures f
    CROSS JOIN LATERAL unnest(f.notices_percent || 0::smallint) AS t(percent)
    WHERE cardinality(f.notices_percent) > 0
), raised AS (
    INSERT INTO quota_notices (tenant, meter, period_start, period_end, percent, consumed, allowance, runs_out_at, raised_at, resolved_at)
    SELECT tenant, meter, period_start, period_end, percent, consumed, allowance,
        CASE WHEN percent = 0 THEN period_start + floor(allowance * passed_s / consumed)::bigint * interval '1 second' END, $1,
        CASE WHEN is_over THEN $1 END
    FROM due
    WHERE holds AND consumed > 0 AND (percent > 0 OR (consumed < allowance AND passed_s * 10 >= whole_s AND NOT is_over))
    ON CONFLICT DO NOTHING
    RETURNING tenant, meter, period_start, percent
), resolved AS (
    UPDATE quota_notices n SET resolved_at = $1
    FROM due d
    WHERE (n.tenant, n.meter, n.period_start, n.percent) = (d.tenant, d.meter, d.period_start, d.percent)
        AND n.resolved_at IS NULL AND (d.is_over OR NOT d.holds)
    RETURNING n.tenant, n.meter, n.period_start, n.percent
), ended AS (
    -- Nothing is booked of a quota that includes nothing and was not used: it is closed only where something may go on.
    UPDATE quota_periods q SET notices_ended = true
    FROM page p
    LEFT JOIN balances b USING (tenant, meter, period_start)
    LEFT JOIN period_closures c USING (tenant, meter, period_start)
    WHERE (q.tenant, q.meter, q.period_start) = (p.tenant, p.meter, p.period_start)
        AND (c.tenant IS NOT NULL OR (b.tenant IS NULL AND p.period_end < $1 - interval '35 days'))
), changed AS (
    SELECT *, CASE WHEN percent = 0 THEN 'quota.forecast' ELSE 'quota.threshold' END AS event FROM raised
    UNION ALL
    -- Several that end at once are one delivery, of the lowest threshold.
    (SELECT DISTINCT ON (tenant, meter, period_start) *, 'quota.resolved' FROM resolved
    ORDER BY tenant, meter, period_start, percent = 0, percent)
), delivered AS (
    INSERT INTO webhook_deliveries (tenant, meter, period_start, percent, event, webhook, created_at, next_attempt_at)
    SELECT c.tenant, c.meter, c.period_start, c.percent, c.event, w.id, $1, $1
    FROM changed c
    JOIN webhooks w ON c.event = ANY (w.events) AND (w.tenant IS NULL OR w.tenant = c.tenant)
    -- None is deleted before its deliveries are stored.
    FOR KEY SHARE OF w
)
SELECT last.tenant, last.meter, last.period_start, (SELECT count(*) FROM raised) AS raised, (SELECT count(*) FROM resolved) AS resolved
FROM (SELECT tenant, meter, period_start FROM page ORDER BY tenant DESC, meter DESC, period_start DESC LIMIT 1) last
