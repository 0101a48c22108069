-- Cuts at one place are in the order of their instants, but for those that instances of an earlier version made at a
-- boundary: what follows from these, in the order of then, is booked.
ALTER TABLE cuts ADD COLUMN is_at_instant boolean NOT NULL DEFAULT false;
