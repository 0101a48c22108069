#!lua flags=no-writes
-- peek: reads counters as they are.
-- KEYS     1 meta  2 outbox  3 tenant's state  4.. subjects' states, then, where light counters are asked for, the
--          hashes of the tenant's and of each subject's
-- ARGV     1 epoch  2 now ('' = Redis's)  3 counters (packed in gate/counters.rs)  4 light counters, packed likewise
--          ('' = none)
-- returns  { status, real time, time, outbox's last id, ... }
--          DONE: readings, light readings    COLD: readings, light readings, tenant, state hashes, counters
--          ALARM: epoch found
-- event    none
-- include prelude
-- include state_keys
-- include is_known
-- include last_id
-- include read_checks
-- include load_light
-- include measure
-- include find_cold
-- include pack_readings

local real, now, _, alarm = prelude(ARGV[2])
if alarm then
  return alarm
end
local epoch, checks, light = tonumber(ARGV[1]), read_checks(ARGV[3], 1), {}
local cold = find_cold(measure(state_keys(3), checks, epoch, now), checks)
if ARGV[4] ~= '' then
  light = read_checks(ARGV[4], 1)
  -- There are as many hashes of light counters as of the others.
  load_light({}, KEYS, 3 + (#KEYS - 2) / 2, light, epoch, now)
end
local readings, of_light = pack_readings(checks, is_known), pack_readings(light, is_known)
if cold then
  return { COLD, real, now, last_id(KEYS[2]), readings, of_light, cold.tenant, cold.holders, cold.counters }
end
return { DONE, real, now, last_id(KEYS[2]), readings, of_light }
