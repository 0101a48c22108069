ALTER TABLE cuts DROP COLUMN held;
DROP TABLE quota_changes, plan_changes;
