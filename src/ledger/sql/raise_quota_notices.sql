-- Raises and resolves the notices of a page of open quotas, from what is booked, with a delivery of each to each
-- webhook that wants it. A threshold holds at or above it. The forecast holds once a tenth of the period is over and
-- what was used until now would be more than all at its end. Grants that go on count before a close brings them.
WITH page AS (
    SELECT tenant, meter, period_start, period_end, notices_percent FROM quota_periods
    WHERE period_start <= $1 AND period_end > $1 AND ($2::text IS NULL OR (tenant, meter) > ($2, $3::text))
    ORDER BY tenant, meter
    LIMIT $4
), figures AS (
    SELECT p.*, b.consumed - b.adjusted AS consumed, b.available + b.reserved + b.consumed - b.adjusted + coalesce(a.amount, 0) AS allowance,
        extract(epoch FROM $1 - p.period_start) AS passed_s, extract(epoch FROM p.period_end - p.period_start) AS whole_s
    FROM page p
    JOIN balances b USING (tenant, meter, period_start)
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
    INSERT INTO quota_notices (tenant, meter, period_start, period_end, percent, consumed, allowance, runs_out_at, raised_at)
    SELECT tenant, meter, period_start, period_end, percent, consumed, allowance,
        CASE WHEN percent = 0 THEN period_start + floor(allowance * passed_s / consumed)::bigint * interval '1 second' END, $1
    FROM due
    WHERE holds AND consumed > 0 AND (percent > 0 OR (consumed < allowance AND passed_s * 10 >= whole_s))
    ON CONFLICT DO NOTHING
    RETURNING tenant, meter, period_start, percent
), resolved AS (
    UPDATE quota_notices n SET resolved_at = $1
    FROM due d
    WHERE (n.tenant, n.meter, n.period_start, n.percent) = (d.tenant, d.meter, d.period_start, d.percent)
        AND n.resolved_at IS NULL AND NOT d.holds
    RETURNING n.tenant, n.meter, n.period_start, n.percent
), changed AS (
    SELECT *, CASE WHEN percent = 0 THEN 'quota.forecast' ELSE 'quota.threshold' END AS event FROM raised
    UNION ALL
    SELECT *, 'quota.resolved' FROM resolved
), delivered AS (
    INSERT INTO webhook_deliveries (tenant, meter, period_start, percent, event, webhook, created_at, next_attempt_at)
    SELECT c.tenant, c.meter, c.period_start, c.percent, c.event, w.id, $1, $1
    FROM changed c
    JOIN webhooks w ON c.event = ANY (w.events) AND (w.tenant IS NULL OR w.tenant = c.tenant)
    -- None is deleted before its deliveries are stored.
    FOR KEY SHARE OF w
)
SELECT last.tenant, last.meter, (SELECT count(*) FROM raised) AS raised, (SELECT count(*) FROM resolved) AS resolved
FROM (SELECT tenant, meter FROM page ORDER BY tenant DESC, meter DESC LIMIT 1) last
