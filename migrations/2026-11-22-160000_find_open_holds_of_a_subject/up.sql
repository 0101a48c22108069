-- A subject that the gate does not know is restored alone: without reading the tenant's other holds. Subjects' numbers are unique
-- among all tenants. What has just been added is read one by one, so little of it is left unsorted.
CREATE INDEX reservations_open_by_subject ON reservations USING gin (subjects) WITH (gin_pending_list_limit = 256) WHERE state = 'reserved';
