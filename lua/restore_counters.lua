#!lua flags=allow-oom
-- restore_counters: restores single counters of a warm tenant or subject from the ledger; counters that it has stay.
-- KEYS     1 meta  2 outbox  3 state
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  then per counter: field, value
-- returns  { status, real time, time, '' }    DONE    KEPT: it had all of them    COLD: the whole hash is cold
--          ALARM: epoch found
-- event    none
-- include prelude
-- include last_sequence
-- include unfit

-- read
local real, now, _, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local header = redis.call('HGET', KEYS[3], 'h')
local told = struct.pack('<i8c16', last_sequence(KEYS[2], ARGV[1]), string.rep('\0', 16))

-- check
local refused = unfit(real, now, header, '')
if refused then
  return refused
end

-- write
local written = 0
for at = 4, #ARGV, 2 do
  if redis.call('HSETNX', KEYS[3], ARGV[at], ARGV[at + 1]) == 1 then
    redis.call('HSET', KEYS[3], 'r' .. ARGV[at], told)
    written = written + 1
  end
end
return { written > 0 and DONE or KEPT, real, now, '' }
