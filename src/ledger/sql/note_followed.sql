-- The terms of these periods have the changes up to this version of the policy. Those that began long ago follow it no
-- more, and those that are closed. One of them that includes nothing has no entry: where something of it may go on, it
-- gets a balance, without which it would never be closed.
WITH followed AS (
    UPDATE quota_periods q SET followed_version = CASE WHEN q.period_start > $5 THEN $4::bigint END
    FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
    WHERE q.tenant = w.tenant AND q.meter = w.meter AND q.period_start = w.period_start
    RETURNING q.tenant, q.meter, q.period_start, q.period_end,
        q.included = 0 AND (q.max_rollover > 0 OR q.preserve_overage) AND q.followed_version IS NULL AS needs_balance
)
INSERT INTO balances (tenant, meter, period_start, period_end)
SELECT tenant, meter, period_start, period_end FROM followed
WHERE needs_balance
ORDER BY tenant, meter, period_start
ON CONFLICT DO NOTHING
