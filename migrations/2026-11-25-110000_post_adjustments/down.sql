DROP VIEW usage_by_entries;
CREATE VIEW usage_by_entries AS
SELECT tenant, meter, hour_at, operation, subject,
    sum(CASE WHEN debit = 'consumed' THEN amount ELSE -amount END) AS consumed,
    count(DISTINCT (operation_id, line)) FILTER (WHERE debit = 'consumed') AS count,
    coalesce(sum(amount) FILTER (WHERE excess), 0) AS excess,
    coalesce(sum(amount) FILTER (WHERE late), 0) AS late
FROM entries, unnest(0::bigint || subjects) AS named(subject)
WHERE debit = 'consumed' OR credit = 'consumed'
GROUP BY tenant, meter, hour_at, operation, subject;
DO $$
DECLARE
    role text;
BEGIN
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ('tollgate_writer', 'tollgate_service') LOOP
        EXECUTE format('GRANT SELECT ON usage_by_entries TO %I', role);
    END LOOP;
END
$$;
ALTER TABLE usage_hourly DROP COLUMN corrections;
ALTER TABLE corrections
    DROP COLUMN adjusted,
    DROP CONSTRAINT correction_is_bounded,
    ADD CONSTRAINT correction_is_positive_and_bounded CHECK (consumed > 0 AND consumed < 1e18) NOT VALID;
DROP TABLE adjustment_grants, adjustments;
