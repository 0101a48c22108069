-- Packs the figures of counters for a checkpoint's event, as domain/checkpoint.rs reads them; capacities are not used.
local function pack_figures(counters, is_told)
  local values, at = {}, 0
  for number = 1, #counters do
    local counter = counters[number]
    values[at + 1], values[at + 2], values[at + 3] = counter.consumed, counter.reserved, 0
    values[at + 4], values[at + 5] = counter.next_end, is_told(counter) and 1 or 0
    at = at + 5
  end
  return struct.pack('<' .. string.rep('i8i8i8i8B', #counters), unpack(values))
end
