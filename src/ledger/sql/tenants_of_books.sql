-- Every tenant with anything in the books, one after the other: each step looks into an index of each table.
WITH RECURSIVE t AS (
    SELECT '' AS tenant
    UNION ALL
    SELECT least(
        (SELECT tenant FROM entries WHERE tenant > t.tenant ORDER BY tenant LIMIT 1),
        (SELECT tenant FROM balances WHERE tenant > t.tenant ORDER BY tenant LIMIT 1),
        (SELECT tenant FROM usage_hourly WHERE tenant > t.tenant ORDER BY tenant LIMIT 1),
        (SELECT tenant FROM quota_periods WHERE tenant > t.tenant ORDER BY tenant LIMIT 1),
        (SELECT tenant FROM statements WHERE tenant > t.tenant ORDER BY tenant LIMIT 1),
        (SELECT tenant FROM grants WHERE tenant > t.tenant ORDER BY tenant LIMIT 1),
        (SELECT tenant FROM reservations WHERE tenant > t.tenant ORDER BY tenant LIMIT 1),
        (SELECT tenant FROM reservations_archive WHERE tenant > t.tenant ORDER BY tenant LIMIT 1)
    )
    FROM t WHERE t.tenant IS NOT NULL
)
SELECT tenant FROM t WHERE tenant <> ''
