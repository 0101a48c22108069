-- Finds the balances whose periods are not closed, and indexes them. Finding them reads all and locks nothing; booking
-- and closes wait only while these are marked and the index is built. The gate goes on, and so do reads.
SET LOCAL work_mem = '256MB';
CREATE TEMPORARY TABLE found_open ON COMMIT DROP AS
SELECT b.tenant, b.meter, b.period_start FROM balances b
LEFT JOIN period_closures c USING (tenant, meter, period_start)
WHERE c.tenant IS NULL;
ANALYZE found_open;
LOCK TABLE balances IN SHARE ROW EXCLUSIVE MODE;
UPDATE balances b SET is_closed = false
FROM found_open f
WHERE b.tenant = f.tenant AND b.meter = f.meter AND b.period_start = f.period_start AND NOT EXISTS (
    SELECT FROM period_closures c
    WHERE c.tenant = b.tenant AND c.meter = b.meter AND c.period_start = b.period_start
);
CREATE INDEX balances_that_are_open ON balances (period_end, tenant, meter) WHERE NOT is_closed;

-- Periods that are not closed, and from which grants go on to one that is open, of which the gate has no advance there.
-- What an earlier close may still bring, or calls that wait for the gate may use, is not known, and may stay so for long.
CREATE OR REPLACE VIEW periods_to_advance AS
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
WHERE NOT b.is_closed AND c.tenant IS NULL AND b.reserved >= 0 AND l.lacks_advance;
