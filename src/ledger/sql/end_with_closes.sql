-- Grants that were to go on, or have, and end with these closes: nothing is left of them, they last no longer, or no
-- period takes them. No cut of theirs is wanted any more.
WITH closed AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS w(tenant, meter, period_start, closed_at)
), standing AS (
    -- The view would be read whole: each of its parts has to be joined to the closes.
    SELECT w.tenant, w.period_start, w.closed_at, g.id AS grant_id
    FROM closed w
    JOIN grants g USING (tenant, meter, period_start)
    WHERE g.goes_on AND g.settled_at IS NULL
    UNION ALL
    SELECT w.tenant, w.period_start, w.closed_at, n.grant_id
    FROM closed w
    -- Looked up one by one: a plan that is made while the table is empty would read all of it later.
    CROSS JOIN LATERAL (
        SELECT n.grant_id FROM continued_grants n
        WHERE n.tenant = w.tenant AND n.meter = w.meter AND n.period_start = w.period_start OFFSET 0
    ) n
), ended AS (
    UPDATE grants g SET settled_at = s.closed_at
    FROM standing s
    WHERE g.tenant = s.tenant AND g.id = s.grant_id AND g.settled_at IS NULL AND NOT EXISTS (
        SELECT FROM continued_grants n
        WHERE n.tenant = g.tenant AND n.grant_id = g.id AND n.period_start > s.period_start
    )
    RETURNING g.tenant, g.id
), dropped AS (
    DELETE FROM due_cuts d USING ended e WHERE d.tenant = e.tenant AND d.grant_id = e.id AND d.is_end
)
UPDATE cuts c SET is_settled = true
FROM ended e
WHERE c.tenant = e.tenant AND c.grant_id = e.id AND c.is_end
