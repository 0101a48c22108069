#!lua flags=allow-oom
-- restore_record: what the ledger knows of one resolved reservation; one known in this epoch stays.
-- KEYS     1 meta  2 outbox  3 reservation
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 record  5 tombstone ms
-- returns  { status, real time, time, '' }    DONE    KEPT: known already    ALARM: epoch found
-- event    none
-- include statuses
-- include clock
-- include read_record

-- read
local real, now = clock(ARGV[3])
local found = redis.call('HGET', KEYS[1], 'epoch')
local raw = redis.call('GET', KEYS[3])

-- check
if found ~= ARGV[1] then
  return { ALARM, real, now, '', found or '' }
end
if read_record(raw, tonumber(ARGV[1])) then
  return { KEPT, real, now, '' }
end
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now, '' }
end

-- write
redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[5])
return { DONE, real, now, '' }
