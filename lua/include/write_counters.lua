-- Writes the counters marked as moved, one HSET a hash, and logs by themselves, which end by Redis's clock or never.
local function write_counters(holders, counters, by_redis_clock)
  local writes = {}
  for number = 1, #counters do
    local counter = counters[number]
    if counter.moved and counter.algorithm.has_log then
      counter.algorithm.store(counter, by_redis_clock)
    elseif counter.moved then
      local list = writes[counter.scope_index]
      if not list then
        list = { 'HSET', holders[counter.scope_index].key }
        writes[counter.scope_index] = list
      end
      local at = #list
      list[at + 1] = counter.field
      list[at + 2] = counter.algorithm.save(counter)
    end
  end
  for _, list in pairs(writes) do
    redis.call(unpack(list))
  end
end
