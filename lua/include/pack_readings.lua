-- Packs how counters stand. A capacity that the script does not know is -1.
local function pack_readings(counters, is_current)
  local values, at = {}, 0
  for number = 1, #counters do
    local counter = counters[number]
    values[at + 1], values[at + 2], values[at + 3] = counter.consumed, counter.reserved, counter.capacity or -1
    values[at + 4], values[at + 5] = counter.next_end, is_current(counter) and 1 or 0
    at = at + 5
  end
  return struct.pack('<' .. string.rep('i8i8i8i8B', #counters), unpack(values))
end
