-- include statuses
-- include clock
-- What every script about one reservation reads first: its partition, in the epoch that the caller expects.
local meta, outbox, reservation = KEYS[1], KEYS[2], KEYS[3]
local prefix = string.sub(meta, 1, -5)
local epoch, not_after = tonumber(ARGV[1]), tonumber(ARGV[2])
local real, now = clock(ARGV[3])
local found = redis.call('HMGET', meta, 'epoch', 'swept', 'floor')
if found[1] ~= ARGV[1] or not found[2] then
  return { ALARM, real, now, '', found[1] or '' }
end
local floor = found[3]
