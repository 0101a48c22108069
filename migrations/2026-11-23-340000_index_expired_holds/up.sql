-- Finance looks for holds that nobody resolved, over all tenants; they are few among what is resolved.
-- Booking waits while the index is built; the gate goes on.
CREATE INDEX reservations_resolved_expired ON reservations_resolved (resolved_at DESC, id DESC) WHERE state = 'expired';
CREATE INDEX reservations_archive_expired ON reservations_archive (resolved_at DESC, id DESC) WHERE state = 'expired';
