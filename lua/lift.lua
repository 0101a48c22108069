#!lua flags=allow-oom
-- lift: lifts a ban that a limit has placed. The limit forgets all that it remembers of whom it counts.
-- KEYS     1 meta  2 outbox  3 the hash in which its counter stands  4 bans
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 field of what the limit remembers  5 the ban's name
-- returns  { status, real time, time, '' }    DONE    UNKNOWN: there is no such ban, or it has ended
--          ALARM: epoch found
-- event    none
-- include prelude
-- include out_of_time

-- read
local real, now, _, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local ends_at = redis.call('ZSCORE', KEYS[4], ARGV[5])
redis.call('HGET', KEYS[3], ARGV[4])

-- check
if not ends_at or tonumber(ends_at) <= now then
  return { UNKNOWN, real, now, '' }
end
local refused = out_of_time(real, now)
if refused then
  return refused
end

-- write
redis.call('HDEL', KEYS[3], ARGV[4])
redis.call('ZREM', KEYS[4], ARGV[5])
return { DONE, real, now, '' }
