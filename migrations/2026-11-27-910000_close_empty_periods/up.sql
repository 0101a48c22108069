-- A period that includes nothing had no balance until it was used, and so was never closed: what might have gone on of
-- it kept grants of the period after it from ending, and that one from being closed and billed. Now such a period has a
-- balance, and those that stand get one. Where nothing may go on there is none; what follows policy gets it after that.
INSERT INTO balances (tenant, meter, period_start, period_end)
SELECT q.tenant, q.meter, q.period_start, q.period_end
FROM quota_periods q
WHERE q.included = 0 AND (q.max_rollover > 0 OR q.preserve_overage) AND q.followed_version IS NULL
    AND NOT EXISTS (
        SELECT FROM balances b WHERE b.tenant = q.tenant AND b.meter = q.meter AND b.period_start = q.period_start
    )
ORDER BY q.tenant, q.meter, q.period_start
ON CONFLICT DO NOTHING;
