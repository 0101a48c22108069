-- How a reserve treats a request that does not fit: the numbers in calls.
local ALL_OR_NOTHING, BEST_EFFORT, DRY_RUN, USAGE, DRY_BEST_EFFORT, DRY_USAGE = 0, 1, 2, 3, 4, 5
