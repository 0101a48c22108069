SELECT concat_ws(' ', 'quota', tenant, meter, period_start AT TIME ZONE 'UTC') AS what,
    concat('opened and granted ', coalesce(due, 0), ', entries grant ', coalesce(granted, 0)) AS detail
FROM (
    SELECT tenant, meter, period_start, sum(amount) AS due
    FROM (
        SELECT tenant, meter, period_start, included AS amount FROM quota_periods WHERE tenant = ANY($1)
        UNION ALL
        SELECT tenant, meter, period_start, amount FROM grants WHERE tenant = ANY($1) AND period_start IS NOT NULL
    ) d
    GROUP BY 1, 2, 3
) q
FULL JOIN (
    SELECT tenant, meter, period_start, sum(CASE credit WHEN 'granted' THEN amount ELSE -amount END) AS granted FROM entries
    WHERE tenant = ANY($1) AND class = 'grant' AND 'granted' IN (credit, debit)
    GROUP BY 1, 2, 3
) g USING (tenant, meter, period_start)
WHERE coalesce(due, 0) <> coalesce(granted, 0)
LIMIT $2
