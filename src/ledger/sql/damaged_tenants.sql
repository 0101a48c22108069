-- Tenants of which a balance or hourly usage differs from the entries, or a balance from its closure, or of which one
-- is missing that a period needs to be closed.
SELECT DISTINCT tenant
FROM (
    SELECT tenant
    FROM (SELECT * FROM balances WHERE tenant = ANY($1)) b
    FULL JOIN (SELECT * FROM balances_by_entries WHERE tenant = ANY($1)) e USING (tenant, meter, period_start)
    WHERE (
        coalesce(b.granted, 0), coalesce(b.rolled_in, 0), coalesce(b.carried_in, 0), coalesce(b.overage, 0),
        coalesce(b.adjusted, 0), coalesce(b.available, 0), coalesce(b.reserved, 0), coalesce(b.consumed, 0),
        coalesce(b.lapsed, 0), coalesce(b.voided, 0), coalesce(b.rolled_out, 0), coalesce(b.carried_out, 0),
        coalesce(b.repaid, 0), coalesce(b.reserved_beside_gate, 0), coalesce(b.consumed_beside_gate, 0),
        coalesce(b.consumed_of_carried, 0)
    ) <> (
        coalesce(e.granted, 0), coalesce(e.rolled_in, 0), coalesce(e.carried_in, 0), coalesce(e.overage, 0),
        coalesce(e.adjusted, 0), coalesce(e.available, 0), coalesce(e.reserved, 0), coalesce(e.consumed, 0),
        coalesce(e.lapsed, 0), coalesce(e.voided, 0), coalesce(e.rolled_out, 0), coalesce(e.carried_out, 0),
        coalesce(e.repaid, 0), coalesce(e.reserved_beside_gate, 0), coalesce(e.consumed_beside_gate, 0),
        coalesce(e.consumed_of_carried, 0)
    )
    UNION ALL
    SELECT tenant
    FROM (SELECT * FROM usage_hourly WHERE tenant = ANY($1)) u
    FULL JOIN (SELECT * FROM usage_by_entries WHERE tenant = ANY($1)) e USING (tenant, meter, hour_at, operation, subject)
    WHERE (coalesce(u.consumed, 0), coalesce(u.count, 0), coalesce(u.excess, 0), coalesce(u.late, 0), coalesce(u.corrections, 0))
        <> (coalesce(e.consumed, 0), coalesce(e.count, 0), coalesce(e.excess, 0), coalesce(e.late, 0), coalesce(e.corrections, 0))
    UNION ALL
    SELECT b.tenant
    FROM (SELECT * FROM balances WHERE tenant = ANY($1)) b
    LEFT JOIN period_closures k USING (tenant, meter, period_start)
    WHERE b.is_closed <> (k.tenant IS NOT NULL)
    UNION ALL
    SELECT tenant FROM quota_periods_without_balance WHERE tenant = ANY($1)
) d
ORDER BY 1
