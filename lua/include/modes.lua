-- How a reserve treats what does not fit, as calls carry it.
local ALL_OR_NOTHING, BEST_EFFORT, DRY_RUN, USAGE, DRY_BEST_EFFORT = 0, 1, 2, 3, 4
