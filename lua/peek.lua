#!lua flags=no-writes
-- peek: reads counters as they are.
-- KEYS     1 meta  2 outbox  3 tenant's state  4.. subjects' states
-- ARGV     1 epoch  2 now ('' = Redis's)  3 counters (packed in gate/counters.rs)
-- returns  { status, real time, time, outbox's last id, ... }
--          DONE: readings    COLD: readings, tenant, state hashes, counters    ALARM: epoch found
-- event    none
-- include prelude
-- include state_keys
-- include is_known
-- include last_id
-- include read_checks
-- include measure
-- include find_cold
-- include pack_readings

local real, now, _, alarm = prelude(ARGV[2])
if alarm then
  return alarm
end
local checks = read_checks(ARGV[3], 1)
local cold = find_cold(measure(state_keys(3), checks, tonumber(ARGV[1]), now), checks)
local readings = pack_readings(checks, is_known)
if cold then
  return { COLD, real, now, last_id(KEYS[2]), readings, cold.tenant, cold.holders, cold.counters }
end
return { DONE, real, now, last_id(KEYS[2]), readings }
