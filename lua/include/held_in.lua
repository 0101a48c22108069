-- The units that an open record holds in one of its counters.
local function held_in(record, counter)
  return counter.algorithm.held(counter, record.held, record.consumed)
end
