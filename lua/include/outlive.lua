-- include integer
-- include told_sequence
-- include hash_end
-- Keeps a hash of a subject, or of light counters, for an hour after its windows and its last hold. With a test clock
-- nothing ends by itself. A log may be there without the hash.
local function outlive(holder, needed_until, now, by_redis_clock)
  local header = holder.values[1]
  if not header then
    return
  end
  local end_at = holder.is_light and 9 or 33
  local ends_at = #header >= end_at + 7 and struct.unpack('<i8', header, end_at) or 0
  local expires_at = hash_end(needed_until, now)
  if by_redis_clock and expires_at > ends_at then
    local told = holder.is_light and '' or struct.pack('<i8', told_sequence(header))
    holder.values[1] = string.sub(header, 1, end_at - 1 - #told) .. told .. struct.pack('<i8', expires_at) .. string.sub(header, end_at + 8)
    redis.call('HSET', holder.key, 'h', holder.values[1])
    redis.call('PEXPIREAT', holder.key, integer(expires_at))
  end
end
