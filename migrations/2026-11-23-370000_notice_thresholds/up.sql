-- At which percentages of a quota its tenant gets a notice: fixed when the period opens, as the included amount.
ALTER TABLE quota_periods ADD COLUMN notices_percent smallint[] NOT NULL DEFAULT '{50,80,90,100}';

-- Notices of quotas: once for each period and percentage; percentage 0 is the forecast that it runs out before its end.
CREATE TABLE quota_notices (
    tenant text NOT NULL,
    meter text NOT NULL,
    period_start timestamptz NOT NULL,
    period_end timestamptz NOT NULL,
    percent smallint NOT NULL CONSTRAINT notice_percent_is_0_to_100 CHECK (percent BETWEEN 0 AND 100),
    -- What was booked then, and of how much.
    consumed numeric(28, 9) NOT NULL,
    allowance numeric(28, 9) NOT NULL,
    -- When the quota is used up at the pace of the period so far; of forecasts alone.
    runs_out_at timestamptz,
    raised_at timestamptz NOT NULL,
    -- When it was found to hold no longer; it is not raised again.
    resolved_at timestamptz,
    PRIMARY KEY (tenant, meter, period_start, percent)
);
CREATE INDEX quota_notices_newest_first ON quota_notices (tenant, raised_at DESC, meter DESC, percent DESC);
CREATE INDEX quota_notices_by_age ON quota_notices (raised_at);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'tollgate_service') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON quota_notices TO tollgate_service;
    END IF;
END
$$;
