-- A period that includes nothing had no balance until it was used, and so was never closed: what might have gone on of
-- it kept grants of the period after it from ending, and that one from being closed and billed. Now such a period has a
-- balance, and those that stand get one. Where nothing may go on there is none; what follows policy gets it after that.
CREATE VIEW quota_periods_without_balance AS
SELECT q.tenant, q.meter, q.period_start, q.period_end
FROM quota_periods q
LEFT JOIN balances b USING (tenant, meter, period_start)
WHERE b.tenant IS NULL AND q.included = 0 AND (q.max_rollover > 0 OR q.preserve_overage) AND q.followed_version IS NULL;

INSERT INTO balances (tenant, meter, period_start, period_end)
SELECT tenant, meter, period_start, period_end
FROM quota_periods_without_balance
ORDER BY tenant, meter, period_start
ON CONFLICT DO NOTHING;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT ON quota_periods_without_balance TO tollgate_service;
    END IF;
END
$$;
