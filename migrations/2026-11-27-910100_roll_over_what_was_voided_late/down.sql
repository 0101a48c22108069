CREATE OR REPLACE VIEW rolling_grants AS
SELECT tenant, meter, period_start, id AS grant_id
FROM grants
WHERE max_rollover > 0 AND NOT goes_on AND (recurrence = 'period' OR repeats IS NOT NULL) AND settled_at IS NULL;
