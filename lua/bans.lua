#!lua flags=no-writes
-- bans: reads the bans of a tenant that limits have placed and that have not ended: those that end last first.
-- KEYS     1 meta  2 outbox  3 bans
-- ARGV     1 epoch  2 now ('' = Redis's)  3 the latest end (unix ms)  4 how many that end then are left out
--          5 how many at most
-- returns  { status, real time, time, '', ... }
--          DONE: per ban its name and when it ends    ALARM: epoch found
-- event    none
-- include prelude
-- include integer

local real, now, _, alarm = prelude(ARGV[2])
if alarm then
  return alarm
end
local ends = { 'ZREVRANGEBYSCORE', KEYS[3], ARGV[3], '(' .. integer(now), 'WITHSCORES', 'LIMIT', ARGV[4], ARGV[5] }
local found = redis.call(unpack(ends))
return { DONE, real, now, '', unpack(found) }
