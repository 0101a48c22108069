-- include last_id
-- include keys/prefix
-- include find_record
-- include measure_held
-- include measure_record
-- include cold_record
-- What consume, release and extend read first: the reservation, as far as the caller may see it, and its state hashes,
-- or the hashes of its light counters. Returns the call, or nothing and the answer.
local function resolving(real, now, facts)
  local epoch, prefix = tonumber(ARGV[1]), key_prefix()
  local record = find_record(epoch, ARGV[5])
  if not record then
    return nil, { UNKNOWN, real, now, last_id(KEYS[2]) }
  end
  if KEYS[4] then
    redis.call('ZCARD', KEYS[4])
    local hashes = measure_held(prefix, record, epoch, now)
    return { real = real, now = now, facts = facts, prefix = prefix, record = record, holders = {}, hashes = hashes }
  end
  local holders = measure_record(prefix, record, epoch, now)
  return {
    real = real, now = now, facts = facts, prefix = prefix, record = record, holders = holders, cold = cold_record(holders, record),
  }
end
