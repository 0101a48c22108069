-- Writes the counters marked as moved, one HSET a hash.
local function write_counters(holders, counters)
  local writes = {}
  for number = 1, #counters do
    local counter = counters[number]
    if counter.moved then
      local list = writes[counter.holder]
      if not list then
        list = { 'HSET', holders[counter.holder].key }
        writes[counter.holder] = list
      end
      local at = #list
      list[at + 1] = counter.field
      list[at + 2] = struct.pack('<i8i8i8i8', counter.window, counter.consumed, counter.reserved, counter.next_end)
    end
  end
  for _, list in pairs(writes) do
    redis.call(unpack(list))
  end
end
