-- An approval may say nothing of when its plan holds: what it includes less then waits for the next period.
ALTER TABLE upgrade_requests ADD COLUMN raises_only boolean NOT NULL DEFAULT false;
