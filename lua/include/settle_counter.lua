-- Moves a counter in memory by what a record's lines held and consumed before and have after: `freed` units are no longer held, `used`
-- more are consumed. What is used is taken from what was held as far as that goes; the rest of the hold returns.
local function settle_counter(counter, freed, used)
  local algorithm = counter.algorithm
  if used >= freed then
    algorithm.settle(counter, freed)
    algorithm.charge(counter, used - freed)
  else
    algorithm.settle(counter, used)
    algorithm.give_back(counter, freed - used)
  end
end
