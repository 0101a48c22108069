-- Packs how counters stand. A capacity that the script does not know is -1.
local function pack_readings(counters, is_current)
  local parts = {}
  for number, counter in ipairs(counters) do
    parts[number] = struct.pack('<i8i8i8i8B', counter.consumed, counter.reserved, counter.capacity or -1,
      counter.next_end, is_current(counter) and 1 or 0)
  end
  return table.concat(parts)
end
