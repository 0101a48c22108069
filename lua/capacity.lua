#!lua flags=allow-oom
-- capacity: sets a quota's new capacity from the ledger; a version that is not higher than the stored one is ignored.
-- KEYS     1 meta  2 outbox  3 tenant's state
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 field  5 capacity
-- returns  { status, real time, time, '' }    DONE    KEPT: as new or newer is stored    COLD: the whole hash is cold
--          ALARM: epoch found
-- event    none
-- include prelude
-- include unfit

-- read
local real, now, _, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local stored = redis.call('HMGET', KEYS[3], 'h', ARGV[4])

-- check
local refused = unfit(real, now, stored[1], '')
if refused then
  return refused
end
if stored[2] and struct.unpack('<i8', stored[2]) >= struct.unpack('<i8', ARGV[5]) then
  return { KEPT, real, now, '' }
end

-- write
redis.call('HSET', KEYS[3], ARGV[4], ARGV[5])
return { DONE, real, now, '' }
