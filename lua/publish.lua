#!lua flags=allow-oom
-- The writer's position in a partition; only ever raises it.
--
-- KEYS  1 meta
-- ARGV  1 epoch booked  2 unused  3 empty  4 sequence booked
-- Returns {status, real time, now}: DONE · KEPT
-- Event none
-- include status
-- include clock

local real, now = clock(ARGV[3])
local stored = redis.call('HGET', KEYS[1], 'writer')
if stored then
  local dash = string.find(stored, '-', 1, true)
  local epoch, sequence = tonumber(string.sub(stored, 1, dash - 1)), tonumber(string.sub(stored, dash + 1))
  if epoch > tonumber(ARGV[1]) or (epoch == tonumber(ARGV[1]) and sequence >= tonumber(ARGV[4])) then
    return { KEPT, real, now }
  end
end
redis.call('HSET', KEYS[1], 'writer', ARGV[1] .. '-' .. ARGV[4])
return { DONE, real, now }
