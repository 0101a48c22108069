-- What a period that has not begun gets of recurring grants ends with the period's new end at the latest. A cut that is
-- wanted at the old one is wanted no more; one that is wanted at a void stays.
WITH moved AS (
    UPDATE grants g SET expires_at = least(r.expires_at, $3)
    FROM grants r
    WHERE g.tenant = $1 AND g.effective_at = $2 AND g.settled_at IS NULL AND g.voided_at IS NULL
        AND r.tenant = g.tenant AND r.id = g.repeats
    RETURNING g.tenant, g.id
), dropped AS (
    DELETE FROM due_cuts d USING moved m WHERE d.tenant = m.tenant AND d.grant_id = m.id AND d.is_end
)
SELECT id FROM moved
