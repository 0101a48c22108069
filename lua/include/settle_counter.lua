-- Moves a counter in memory by the change of a record's lines: `freed` units are no longer held, `used` more are
-- consumed. Used units come from the freed ones as far as possible; the others are given back.
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
