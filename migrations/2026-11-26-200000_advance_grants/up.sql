-- What the gate has of grants that go on, in a period into which the close of the one before has not brought them yet.
CREATE TABLE grant_advances (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    grant_id uuid NOT NULL,
    amount numeric(28, 9) NOT NULL CONSTRAINT advance_is_bounded CHECK (amount >= 0 AND amount < 1e18),
    PRIMARY KEY (tenant, meter, period_start, grant_id)
);

CREATE OR REPLACE VIEW quota_capacities AS
SELECT q.tenant, q.meter, q.period_start, q.period_end, q.decimals, q.version,
    (greatest(
        coalesce(b.available + b.reserved + b.consumed - b.reserved_beside_gate - b.consumed_beside_gate, 0)
            + coalesce(a.amount, 0), 0
    ) + q.overdraft)::numeric(28, 9) AS capacity
FROM quota_periods q
LEFT JOIN balances b USING (tenant, meter, period_start)
LEFT JOIN LATERAL (
    SELECT sum(v.amount) AS amount FROM grant_advances v
    WHERE v.tenant = q.tenant AND v.meter = q.meter AND v.period_start = q.period_start
) a ON true;

-- Periods that are not closed, and from which grants go on to one that is open, of which the gate has no advance there.
-- What an earlier close may still bring, or calls that wait for the gate may use, is not known, and may stay so for long.
CREATE VIEW periods_to_advance AS
SELECT b.tenant, b.meter, b.period_start, b.period_end
FROM balances b
JOIN quota_periods n ON n.tenant = b.tenant AND n.meter = b.meter AND n.period_start = b.period_end
LEFT JOIN period_closures c ON c.tenant = b.tenant AND c.meter = b.meter AND c.period_start = b.period_start
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM standing_grants g
        WHERE g.tenant = b.tenant AND g.meter = b.meter AND g.period_start = b.period_start
            AND g.expires_at > b.period_end AND g.voided_at IS NULL AND NOT EXISTS (
                SELECT FROM grant_advances v
                WHERE v.tenant = b.tenant AND v.meter = b.meter AND v.period_start = b.period_end AND v.grant_id = g.grant_id
            )
    ) AND NOT EXISTS (
        SELECT FROM (
            SELECT e.tenant, e.meter, e.period_start FROM balances e
            WHERE e.tenant = b.tenant AND e.meter = b.meter AND e.period_start < b.period_start
            ORDER BY e.period_start DESC
            LIMIT 1
        ) before
        LEFT JOIN period_closures k USING (tenant, meter, period_start)
        WHERE k.tenant IS NULL
    ) AND NOT EXISTS (
        SELECT FROM parked p WHERE p.tenant = b.tenant AND p.state = 'waiting' AND p.taken_at < b.period_end
    ) AS lacks_advance
) l
WHERE c.tenant IS NULL AND b.reserved >= 0 AND l.lacks_advance;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, DELETE ON grant_advances TO tollgate_service;
        GRANT SELECT ON periods_to_advance TO tollgate_service;
    END IF;
END
$$;
