-- Packs how counters stand, all of them or the first `count`. A capacity that the script does not know is -1.
local function pack_readings(counters, is_current, count)
  local values, at = {}, 0
  count = count or #counters
  for number = 1, count do
    local counter = counters[number]
    values[at + 1], values[at + 2], values[at + 3] = counter.consumed, counter.reserved, counter.capacity or -1
    values[at + 4], values[at + 5] = counter.next_end, is_current(counter) and 1 or 0
    at = at + 5
  end
  return struct.pack('<' .. string.rep('i8i8i8i8B', count), unpack(values))
end
