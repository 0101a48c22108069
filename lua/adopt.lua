#!lua flags=allow-oom
-- adopt: sets the partition's epoch and floor (no script writes at an earlier time) from the ledger; both only rise.
-- KEYS     1 meta
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 due bucket ms  5 floor (unix ms)
-- returns  { status, real time, time, '', epoch }    DONE    KEPT: as high is adopted
-- event    none
-- include statuses
-- include clock
-- include integer

-- read
local real, now = clock(ARGV[3])
local found = redis.call('HMGET', KEYS[1], 'epoch', 'swept', 'floor')

-- check
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now, '' }
end
if found[1] and found[2] and found[3] and tonumber(found[1]) >= tonumber(ARGV[1]) then
  return { KEPT, real, now, '', found[1] }
end

-- write
local epoch = found[1] and integer(math.max(tonumber(found[1]), tonumber(ARGV[1]))) or ARGV[1]
local swept = found[2] or integer(math.floor(now / tonumber(ARGV[4])) - 1)
local floor = integer(math.max(tonumber(found[3] or 0), tonumber(ARGV[5])))
redis.call('HSET', KEYS[1], 'epoch', epoch, 'swept', swept, 'floor', floor, 'since', integer(now))
return { DONE, real, now, '', epoch }
