-- What waits in quarantine is listed page by page, however much was decided before.
CREATE INDEX quarantine_open_in_order ON quarantine (partition, epoch, sequence) WHERE status = 'open';
