-- include integer
-- include told_sequence
-- include hash_end
-- Keeps a subject's hash for an hour after its windows and its last hold. With a test clock nothing ends by itself. A
-- log may be there without the hash.
local function outlive(holder, needed_until, now, by_redis_clock)
  local header = holder.values[1]
  if not header then
    return
  end
  local ends_at = #header >= 40 and struct.unpack('<i8', header, 33) or 0
  local expires_at = hash_end(needed_until, now)
  if by_redis_clock and expires_at > ends_at then
    local told = struct.pack('<i8i8', told_sequence(header), expires_at)
    holder.values[1] = string.sub(header, 1, 24) .. told .. string.sub(header, 41)
    redis.call('HSET', holder.key, 'h', holder.values[1])
    redis.call('PEXPIREAT', holder.key, integer(expires_at))
  end
end
