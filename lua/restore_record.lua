#!lua flags=allow-oom
-- restore_record: restores one resolved reservation from the ledger; one known in this epoch stays.
-- KEYS     1 meta  2 outbox  3 reservation
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 record  5 tombstone ms
-- returns  { status, real time, time, '' }    DONE    KEPT: known already    ALARM: epoch found
-- event    none
-- include prelude
-- include out_of_time
-- include read_record

-- read
local real, now, _, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local raw = redis.call('GET', KEYS[3])

-- check
if read_record(raw, tonumber(ARGV[1])) then
  return { KEPT, real, now, '' }
end
local refused = out_of_time(real, now)
if refused then
  return refused
end

-- write
redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[5])
return { DONE, real, now, '' }
