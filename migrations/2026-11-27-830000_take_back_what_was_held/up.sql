-- Of a correction it is kept how much of it was held. What of that the period before had paid for is known only once all
-- holds are consumed or have returned: documents work it out.
ALTER TABLE adjustments RENAME COLUMN paid_before TO of_held;
ALTER TABLE adjustments RENAME CONSTRAINT adjustment_of_a_carried_hold_has_its_paid_part TO adjustment_of_a_carried_hold_has_its_held_part;
ALTER TABLE corrections RENAME COLUMN paid_before TO of_held;
ALTER TABLE corrections RENAME CONSTRAINT correction_paid_before_is_bounded TO correction_of_held_is_bounded;
