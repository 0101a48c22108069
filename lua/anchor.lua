#!lua flags=allow-oom
-- anchor: stores the head of a hash chain of the ledger where the ledger's owner cannot write; its number only rises.
-- KEYS     1 meta
-- ARGV     1 epoch  2 now ('' = Redis's)  3 field of the chain  4 number of the head
--          5 the head as text, which begins with its number
-- returns  { status, real time, time, '' }    DONE    KEPT: as high is stored    ALARM: epoch found
-- event    none
-- include prelude

-- read
local real, now, facts, alarm = prelude(ARGV[2], ARGV[3])
if alarm then
  return alarm
end

-- check
local number = facts[4] and tonumber(string.match(facts[4], '^(%d+) '))
if number and number >= tonumber(ARGV[4]) then
  return { KEPT, real, now, '' }
end

-- write
redis.call('HSET', KEYS[1], ARGV[3], ARGV[5])
return { DONE, real, now, '' }
