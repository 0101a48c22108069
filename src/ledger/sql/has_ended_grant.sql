-- Whether a grant of the quota has ended in this period, or is about to. One that goes on ends where it has come to, or
-- where the closes that are still to run bring it.
SELECT EXISTS (
    SELECT FROM grants g
    WHERE g.tenant = $1 AND g.meter = $2 AND g.period_start = $3
        AND (g.settled_at IS NOT NULL OR g.voided_at IS NOT NULL OR g.expires_at <= $4)
) OR EXISTS (
    SELECT FROM continued_grants c
    JOIN grants g ON g.tenant = c.tenant AND g.id = c.grant_id
    WHERE c.tenant = $1 AND c.meter = $2 AND c.period_start = $3
        AND (g.settled_at IS NOT NULL OR g.voided_at IS NOT NULL OR g.expires_at <= $4)
) OR EXISTS (
    SELECT FROM grants g
    WHERE g.tenant = $1 AND g.meter = $2 AND g.goes_on AND g.settled_at IS NULL AND g.period_start < $3
        AND (g.voided_at IS NOT NULL OR g.expires_at <= $4)
) AS has_ended
