-- Why a call was refused, as its answer said: a ban of an admin, or a meter without a limit, is no limit's refusal.
ALTER TABLE decisions ADD COLUMN code text;
