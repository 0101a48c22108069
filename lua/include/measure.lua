-- include quota_capacity
-- include read_header
-- include keys/log
-- include light_scope
-- include keys/beside
-- Reads the state hashes, which of them are warm, and the figures of each counter by its algorithm: as they count new
-- work now or, if given, work of `born_at`. A counter that a record did not move counts nothing of it. Scope 0 is the
-- tenant's hash, which is always read; a subject's is read where a counter needs it. A subject's hash that is missing,
-- or that a script made, lacks what came before the tenant's restore. A scope from LIGHT_SCOPE on is that of light
-- counters of a booked call: what their hash lacks was never counted, and nothing restores it.
local function measure(keys, counters, epoch, now, born_at)
  local tenant = {
    key = keys[1], wanted = { 'HMGET', keys[1], 'h' }, values = false, next = 1, warm = false, restored_at = 0, ask_until = 0,
    waits = false, new_counters = false, untold = false, cold = false, logs = false, is_light = false,
  }
  local holders = { [0] = tenant }
  for number = 1, #counters do
    local counter = counters[number]
    local holder = holders[counter.scope_index]
    if not holder then
      local is_light = counter.scope_index >= LIGHT_SCOPE
      local key = keys[counter.scope_index % LIGHT_SCOPE + 1]
      key = is_light and beside_key(key) or key
      holder = {
        key = key, wanted = { 'HMGET', key, 'h' }, values = false, next = 1, warm = false, restored_at = 0, ask_until = 0,
        waits = false, new_counters = false, untold = false, cold = false, logs = false, is_light = is_light,
      }
      holders[counter.scope_index] = holder
    end
    local wanted = holder.wanted
    wanted[#wanted + 1] = counter.field
    if counter.quota then
      wanted = tenant.wanted
      wanted[#wanted + 1] = counter.quota
    end
  end
  for _, holder in pairs(holders) do
    local values = redis.call(unpack(holder.wanted))
    holder.values = values
    if values[1] and holder.is_light then
      holder.warm = struct.unpack('<i8', values[1]) == epoch
    elseif values[1] then
      read_header(holder, values[1], epoch)
    end
  end
  for number, holder in pairs(holders) do
    if holder.waits then
      holder.cold = true
    elseif number > 0 and not holder.is_light and (not holder.warm or holder.ask_until == -1) then
      holder.untold = tenant.warm
      holder.restored_at = holder.warm and holder.restored_at or tenant.restored_at
    end
  end
  for number = 1, #counters do
    local counter = counters[number]
    local holder = holders[counter.scope_index]
    local at = holder.next + 1
    holder.next = at
    local raw = holder.warm and holder.values[at]
    counter.missing = not raw
    if counter.algorithm.has_log then
      holder.logs = holder.logs or log_key(holder.key, '')
      counter.log = holder.logs .. counter.field
    end
    counter.algorithm.load(counter, raw, born_at or now, not born_at, now, epoch, holder.restored_at)
    if holder.is_light then
      -- What a counter has forgotten of its holds is nothing that it lacks.
      counter.missing, counter.is_new = false, true
    end
    if counter.unmoved then
      counter.current, counter.missing = false, false
    end
    if counter.quota then
      at = tenant.next + 1
      tenant.next = at
      if tenant.warm then
        counter.capacity, counter.is_bound = quota_capacity(tenant.values[at], now)
      end
    end
  end
  return holders
end
