-- Ends of grants that are not cut while the gate is to take back use of the quota in their period: how much it may take
-- back was decided by the ends before. One that is voided, or goes on, is cut where it stands; else around its date.
CREATE VIEW held_up_ends AS
SELECT d.partition, d.tenant, d.grant_id, d.meter, d.due_at, c.cut_at
FROM due_cuts d
JOIN grants g ON g.tenant = d.tenant AND g.id = d.grant_id
CROSS JOIN LATERAL (SELECT CASE WHEN d.due_at > 'epoch' THEN d.due_at ELSE d.period_start END AS cut_at) c
WHERE d.is_end AND EXISTS (
    SELECT FROM adjustments a
    JOIN balances b ON b.tenant = a.tenant AND b.meter = a.meter AND b.period_start = a.gate_period
    WHERE a.tenant = d.tenant AND a.meter = d.meter AND a.state = 'approved' AND a.amount < 0
        AND b.period_start <= c.cut_at AND b.period_end > c.cut_at
);

DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT ON held_up_ends TO %I', role);
    END LOOP;
END
$$;
