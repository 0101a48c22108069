#!lua flags=no-writes
-- peek: reads counters as they are.
-- KEYS     1 meta  2 outbox  3 tenant's state  4.. subjects' states
-- ARGV     1 epoch  2 now ('' = Redis's)  3 counters (packed in gate/counters.rs)
-- returns  { status, real time, time, outbox's last id, ... }
--          DONE: readings    COLD: readings, tenant, holders, counters    ALARM: epoch found
-- event    none
-- include statuses
-- include clock
-- include last_id
-- include read_checks
-- include measure
-- include find_cold
-- include pack_readings

local real, now = clock(ARGV[2])
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then
  return { ALARM, real, now, '', epoch or '' }
end
local keys = {}
for number = 3, #KEYS do
  keys[number - 2] = KEYS[number]
end
local checks = read_checks(ARGV[3], 1)
local cold = find_cold(measure(keys, checks, tonumber(epoch), now), checks)
local readings = pack_readings(checks, function(check)
  return check.known and not check.later
end)
if cold then
  return { COLD, real, now, last_id(KEYS[2]), readings, cold.tenant, cold.holders, cold.counters }
end
return { DONE, real, now, last_id(KEYS[2]), readings }
