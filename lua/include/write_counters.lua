-- Writes the counters marked as moved, one HSET a hash.
local function write_counters(holders, counters)
  local writes = {}
  for _, counter in ipairs(counters) do
    if counter.moved then
      local list = writes[counter.holder] or { 'HSET', holders[counter.holder].key }
      writes[counter.holder] = list
      list[#list + 1] = counter.field
      list[#list + 1] =
        struct.pack('<i8i8i8i8', counter.window, counter.consumed, counter.reserved, counter.next_end)
    end
  end
  for _, list in pairs(writes) do
    redis.call(unpack(list))
  end
end
