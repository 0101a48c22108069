-- The figures of the periods that are not closed yet, and whether one has to wait: for calls that were taken while
-- the gate was away, for grants that are not settled, for what a lowered plan takes, for what use that was taken back
-- leaves of grants that had ended, or for the period before, from which holds and unused quota come. What was consumed
-- of those holds, or adjusted, has burnt nothing of this period; what it repaid has.
SELECT b.tenant, b.meter, b.period_start, b.period_end, b.available, b.reserved, b.reserved_beside_gate AS reserved_of_carried, b.rolled_in,
    b.consumed - b.adjusted + b.repaid - least(b.consumed_of_carried, b.carried_in) AS consumed,
    coalesce(q.included, 0) AS included, coalesce(q.max_rollover, 0) AS max_rollover,
    coalesce(q.min_rollover, 0) AS min_rollover, coalesce(q.reroll, false) AS reroll,
    coalesce(q.rollover_periods, 1::smallint) AS rollover_periods, k.keeps, k.recurs,
    coalesce(q.max_rollover > 0 OR q.preserve_overage, false) OR k.keeps OR k.recurs AS may_go_on,
    coalesce(q.preserve_overage, false) AS preserve_overage, q.tenant IS NOT NULL AS has_quota,
    b.reserved < 0
    OR EXISTS (
        SELECT FROM parked p
        WHERE p.tenant = b.tenant AND p.state = 'waiting' AND p.taken_at < b.period_end + $4::interval
    )
    OR EXISTS (
        SELECT FROM grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.effective_at >= b.period_start AND g.effective_at < b.period_end
            AND g.settled_at IS NULL AND (g.period_start IS NULL OR g.voided_at < b.period_end OR g.expires_at < b.period_end)
    )
    OR EXISTS (
        SELECT FROM standing_grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.period_start = b.period_start
            AND coalesce(g.voided_at, g.expires_at) < b.period_end
    )
    OR EXISTS (
        SELECT FROM quota_changes l
        WHERE l.tenant = b.tenant AND l.meter = b.meter AND l.period_start = b.period_start AND l.amount < 0 AND l.changed IS NULL
    )
    OR EXISTS (
        SELECT FROM unwindings u
        WHERE u.tenant = b.tenant AND u.meter = b.meter AND u.period_start = b.period_start AND NOT u.is_settled
    ) AS waits_by_itself,
    EXISTS (
        SELECT FROM (
            SELECT e.tenant, e.meter, e.period_start FROM balances e
            WHERE e.tenant = b.tenant AND e.meter = b.meter AND e.period_start < b.period_start
            ORDER BY e.period_start DESC
            LIMIT 1
        ) before
        LEFT JOIN period_closures k USING (tenant, meter, period_start)
        WHERE k.tenant IS NULL
    ) AS waits_for_before
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS w(tenant, meter, period_start)
JOIN balances b USING (tenant, meter, period_start)
LEFT JOIN period_closures c USING (tenant, meter, period_start)
LEFT JOIN quota_periods q USING (tenant, meter, period_start)
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM rolled_amounts r
        WHERE r.tenant = b.tenant AND r.meter = b.meter AND r.period_start = b.period_start AND r.periods_left > 0
    ) OR EXISTS (
        SELECT FROM standing_grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.period_start = b.period_start AND g.expires_at > b.period_end
    ) OR EXISTS (
        SELECT FROM rolling_grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.period_start = b.period_start
    ) AS keeps, EXISTS (
        SELECT FROM grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.recurrence = 'period'
            AND g.effective_at < b.period_end AND g.expires_at > b.period_end
            AND (g.voided_at IS NULL OR g.voided_at > b.period_end)
    ) AS recurs
) k
WHERE c.tenant IS NULL
ORDER BY b.tenant, b.meter, b.period_start
