-- include read_light
-- include keys/log
-- Reads light counters of the hashes whose keys begin there, as they count new work or, if given, work of `born_at`:
-- each once in a call, so that a counter that an earlier check has met is the one in memory. A hash of another epoch,
-- and a counter that is missing, have counted nothing.
local function load_light(hashes, keys, first_key, counters, epoch, now, born_at)
  local asked = {}
  for number = 1, #counters do
    local counter = counters[number]
    local key, field = keys[first_key + counter.scope_index], counter.field
    local hash = hashes[key]
    if not hash then
      hash = { key = key, met = {}, header = false, is_known = false, ends_at = 0, needed_until = 0 }
      hashes[key] = hash
    end
    local met = hash.met[field]
    if met then
      met.weights = counter.weights
      counters[number] = met
    else
      hash.met[field], counter.hash = counter, hash
      counter.log = counter.algorithm.has_log and log_key(key, field)
      local wanted = asked[key] or { 'HMGET', key, 'h' }
      asked[key] = wanted
      wanted[#wanted + 1] = field
    end
  end
  for key, wanted in pairs(asked) do
    local hash, told = hashes[key], redis.call(unpack(wanted))
    hash.header = told[1]
    if told[1] then
      local of_epoch
      of_epoch, hash.ends_at = struct.unpack('<i8i8', told[1])
      hash.is_known = of_epoch == epoch
    end
    for place = 4, #wanted do
      read_light(hash.met[wanted[place]], hash.is_known and told[place - 2], epoch, now, born_at)
    end
  end
end
