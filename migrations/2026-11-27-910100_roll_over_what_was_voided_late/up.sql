-- A recurring grant that is voided after its own period has ended counts as settled at once, and what is left of it in
-- that period is not booked yet: the close rolls it over. What ends inside a period has an amount that was unburnt.
CREATE OR REPLACE VIEW rolling_grants AS
SELECT tenant, meter, period_start, id AS grant_id
FROM grants
WHERE max_rollover > 0 AND NOT goes_on AND (recurrence = 'period' OR repeats IS NOT NULL) AND settled_amount IS NULL;
