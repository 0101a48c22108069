-- include states
-- include write_light
-- Writes the light counters that count a changed record, each for as long as it needs what it counts.
local function write_held(hashes, record, now, by_redis_clock)
  local held_until = record.state == STATE_RESERVED and record.expires_at or 0
  for _, counter in ipairs(record.counters) do
    if counter.current then
      local forgotten_at = counter.algorithm.resets_at(counter)
      counter.moved = true
      counter.hash.needed_until = math.max(counter.hash.needed_until, forgotten_at, held_until)
    end
  end
  write_light(hashes, record.epoch, now, by_redis_clock)
end
