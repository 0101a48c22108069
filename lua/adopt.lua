#!lua flags=allow-oom
-- Adopts an epoch that the ledger issued; only ever raises it.
--
-- KEYS  1 meta
-- ARGV  1 epoch  2 unused  3 now (test clock, ms, or empty)  4 width of a due bucket (ms)
-- Returns {status, real time, now, epoch}: DONE · KEPT where the epoch is as high or higher already
-- Event none
-- include status
-- include clock

local real, now = clock(ARGV[3])
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'swept')
if meta[1] and tonumber(meta[1]) >= tonumber(ARGV[1]) then
  return { KEPT, real, now, tonumber(meta[1]) }
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
if not meta[2] then
  redis.call('HSET', KEYS[1], 'swept', string.format('%.0f', math.floor(now / tonumber(ARGV[4])) - 1))
end
return { DONE, real, now, tonumber(ARGV[1]) }
