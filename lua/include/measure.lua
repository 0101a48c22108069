-- include quota_capacity
-- Reads the state hashes: which are warm, and how each counter stands in its window.
-- A field with an earlier window reads as zero. Holder 0 is the tenant's and always read, a subject's where a counter needs it.
local function measure(keys, counters, epoch, now)
  local wanted = { [0] = { 'HMGET', keys[1], 'h' } }
  for _, counter in ipairs(counters) do
    local holder = counter.holder
    local list = wanted[holder] or { 'HMGET', keys[holder + 1], 'h' }
    wanted[holder] = list
    list[#list + 1] = counter.field
    counter.at = #list - 2
    if counter.quota then
      local own = wanted[0]
      own[#own + 1] = counter.quota
      counter.quota_at = #own - 2
    end
  end
  local holders = {}
  for holder, list in pairs(wanted) do
    local values = redis.call(unpack(list))
    local warm, restored_at, ask_until = false, 0, 0
    if values[1] then
      local of_epoch
      of_epoch, restored_at, ask_until = struct.unpack('<i8i8i8', values[1])
      warm = of_epoch == epoch
    end
    holders[holder] = { key = list[2], warm = warm, restored_at = restored_at, ask_until = ask_until, values = values }
  end
  for _, counter in ipairs(counters) do
    local holder = holders[counter.holder]
    local raw = holder.warm and holder.values[counter.at]
    counter.consumed, counter.reserved, counter.next_end = 0, 0, 0
    counter.missing = not raw
    if raw then
      local window, consumed, reserved, next_end = struct.unpack('<i8i8i8i8', raw)
      counter.current, counter.later = window == counter.window, window > counter.window
      if counter.current then
        counter.consumed, counter.reserved, counter.next_end = consumed, reserved, next_end
      end
    end
    if counter.quota and holders[0].warm then
      counter.capacity = quota_capacity(holders[0].values[counter.quota_at], now)
    end
  end
  return holders
end
