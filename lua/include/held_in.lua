-- What an open record holds in one of its counters.
local function held_in(record, counter)
  local units = 0
  for line, weight in pairs(counter.weights) do
    units = units + weight * math.max(record.held[line] - record.consumed[line], 0)
  end
  return units
end
