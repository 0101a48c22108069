-- include outlive
-- Gives each hash of a subject, or of light counters, that a call moves a header, unless it has one of this epoch, and
-- makes it outlive what the call adds to it.
local function keep_subjects(holders, epoch, needed_until, now, by_redis_clock)
  for number, holder in pairs(holders) do
    if number > 0 then
      if not holder.warm then
        local header = holder.is_light and struct.pack('<i8i8', epoch, 0)
          or struct.pack('<i8i8i8i8i8', epoch, holder.restored_at, -1, told_sequence(holders[0].values[1]), 0)
        if holder.values[1] then
          redis.call('DEL', holder.key)
        end
        redis.call('HSET', holder.key, 'h', header)
        holder.values[1], holder.warm = header, true
      end
      outlive(holder, needed_until, now, by_redis_clock)
    end
  end
end
