-- Remembers which reservation was made of this work, for as long as the same work again is its duplicate. By a test
-- clock nothing ends by itself.
local function remember_work(key, within, hex, now, epoch, by_redis_clock)
  local made = struct.pack('<i8i8c32', epoch, now, hex)
  if by_redis_clock then
    redis.call('SET', key, made, 'PX', within)
  else
    redis.call('SET', key, made)
  end
end
