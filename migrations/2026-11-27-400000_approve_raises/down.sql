ALTER TABLE upgrade_requests DROP COLUMN raises_only;
