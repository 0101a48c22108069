-- Whether something returned of carried holds before this end cut and is not booked: it may be a part of what ends.
SELECT EXISTS (
    SELECT FROM cuts c
    JOIN carried_returns r USING (tenant, meter, period_start)
    WHERE c.tenant = $1 AND c.grant_id = $2 AND c.is_end AND (r.epoch, r.sequence) < (c.epoch, c.sequence)
) AS has_returned
