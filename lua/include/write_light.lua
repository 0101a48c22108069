-- include integer
-- include hash_end
-- include list_ban
-- include save_conduct
-- Writes the light counters marked as moved, and the violations that were counted, one HSET a hash, and logs by
-- themselves. A hash of another epoch is replaced whole; each lives an hour longer than what it counts. By a test clock
-- nothing ends by itself.
local function write_light(hashes, epoch, now, by_redis_clock)
  for _, hash in pairs(hashes) do
    local list = { 'HSET', hash.key }
    for field, counter in pairs(hash.met) do
      if counter.moved and counter.algorithm.has_log then
        counter.algorithm.store(counter, by_redis_clock)
      elseif counter.moved then
        local at = #list
        list[at + 1], list[at + 2] = field, counter.algorithm.save(counter)
      end
      local punishment = counter.punishment
      if punishment and punishment.moved then
        local at = #list
        list[at + 1], list[at + 2] = 'v' .. field, save_conduct(punishment)
        list_ban(counter, hash.key, now, by_redis_clock)
      end
    end
    if #list > 2 then
      local ends_at = hash_end(hash.needed_until, now)
      local lives_longer = by_redis_clock and (not hash.is_known or ends_at > hash.ends_at)
      if hash.header and not hash.is_known then
        redis.call('DEL', hash.key)
      end
      if lives_longer or not hash.is_known then
        local at = #list
        list[at + 1], list[at + 2] = 'h', struct.pack('<i8i8', epoch, ends_at)
      end
      redis.call(unpack(list))
      if lives_longer then
        redis.call('PEXPIREAT', hash.key, integer(ends_at))
      end
    end
  end
end
