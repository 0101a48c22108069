ALTER TABLE entries DROP CONSTRAINT entries_pkey;
ALTER TABLE entries ADD PRIMARY KEY (tenant, operation_id, step, line, leg, happened_at);
CREATE INDEX entries_newest_first ON entries (tenant, happened_at DESC);
