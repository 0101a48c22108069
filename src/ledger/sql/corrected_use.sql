-- What was used of a meter in a period: by its books, but for what corrects earlier ones, and by what corrects it.
SELECT (
    coalesce((SELECT consumed - adjusted FROM balances WHERE tenant = $1 AND meter = $2 AND period_start = $3), 0)
    - coalesce((
        SELECT sum(c.consumed) FROM corrections c JOIN billing g USING (tenant)
        WHERE c.tenant = $1 AND c.meter = $2 AND c.booked_in = $3 AND c.period_start >= g.begun_at
    ), 0)
    + coalesce((SELECT sum(consumed + adjusted) FROM corrections WHERE tenant = $1 AND meter = $2 AND period_start = $3), 0)
)::numeric(28, 9) AS consumed
