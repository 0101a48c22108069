-- Retention and restores go by the time of the resolution: an event may be resolved weeks after its birth.
-- Booking waits while the index is built; the gate goes on.
CREATE INDEX reservations_resolved_by_resolution ON reservations_resolved (tenant, resolved_at, id);
