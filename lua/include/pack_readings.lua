-- include unknown_room
-- Packs readings of all counters, or of the first `count`: `i8 consumed  i8 reserved  i8 room  i8 resets at  i8 next
-- end  B current`.
local function pack_readings(counters, is_current, count)
  local values, at = {}, 0
  count = count or #counters
  for number = 1, count do
    local counter = counters[number]
    local algorithm, capacity = counter.algorithm, counter.capacity
    values[at + 1], values[at + 2] = counter.consumed, counter.reserved
    values[at + 3] = capacity and algorithm.room(counter, capacity) or UNKNOWN_ROOM
    values[at + 4], values[at + 5] = algorithm.resets_at(counter), counter.next_end
    values[at + 6] = is_current(counter) and 1 or 0
    at = at + 6
  end
  return struct.pack('<' .. string.rep('i8i8i8i8i8B', count), unpack(values))
end
