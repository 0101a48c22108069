-- Grants that are given again in each period. What a later period gets of one is a grant of its own, a repeat of it.
ALTER TABLE grants
    ADD COLUMN recurrence text NOT NULL DEFAULT 'none',
    ADD COLUMN repeats uuid;
ALTER TABLE grants
    ADD CONSTRAINT grant_recurrence_is_known CHECK (recurrence IN ('none', 'period')) NOT VALID,
    ADD CONSTRAINT grant_repeats_another_one CHECK (repeats IS NULL OR recurrence = 'none' AND repeats <> id) NOT VALID;
CREATE INDEX grants_recurring ON grants (tenant, meter) WHERE recurrence = 'period';
CREATE UNIQUE INDEX grants_repeat_once_a_period ON grants (tenant, repeats, effective_at) WHERE repeats IS NOT NULL;
CREATE INDEX grants_by_repeated ON grants (repeats) WHERE repeats IS NOT NULL;
