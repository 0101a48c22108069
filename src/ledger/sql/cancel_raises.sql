-- Raises of a period's quota by grants that have not begun: they never will.
WITH cancelled AS (
    UPDATE grants g SET voided_at = $4, settled_at = $4
    FROM quota_changes q
    WHERE q.tenant = $1 AND q.meter = $2 AND q.period_start = $3 AND q.changed > 0
        AND g.tenant = q.tenant AND g.id = q.id AND g.period_start IS NULL AND g.settled_at IS NULL
    RETURNING g.tenant, g.id
)
UPDATE quota_changes q SET changed = 0 FROM cancelled c WHERE q.tenant = c.tenant AND q.id = c.id
