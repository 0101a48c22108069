-- A tenant's list reads what is archived, and what only a parked call knows, in the same order as what is booked.
CREATE INDEX reservations_archive_newest_first ON reservations_archive (tenant, born_at DESC, id DESC);
CREATE INDEX parked_admissions_newest_first ON parked (tenant, taken_at DESC, reservation_id DESC)
    WHERE state = 'waiting' AND call IN ('reserve', 'usage');
