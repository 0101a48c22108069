#!lua flags=no-writes
-- peek: reads counters as they are.
-- KEYS     1 meta  2 outbox  3 tenant's state  4.. subjects' states, then, where light counters are asked for, the
--          hashes of the tenant's and of each subject's
-- ARGV     1 epoch  2 now ('' = Redis's)  3 counters (packed in gate/counters.rs)  4 light counters, packed likewise
--          ('' = none)
-- returns  { status, real time, time, outbox's last id, ... }
--          DONE: readings, light readings, what limits with a punishment remember, likewise of light counters
--          COLD: the same, then tenant, state hashes, counters    ALARM: epoch found
-- event    none
-- include prelude
-- include state_keys
-- include is_known
-- include last_id
-- include read_checks
-- include load_light
-- include measure
-- include find_cold
-- include read_conduct
-- include pack_conduct
-- include pack_readings

local real, now, _, alarm = prelude(ARGV[2])
if alarm then
  return alarm
end
local epoch, checks, light = tonumber(ARGV[1]), read_checks(ARGV[3], 1), {}
local holders = measure(state_keys(3), checks, epoch, now)
local cold = find_cold(holders, checks)
for number = 1, #checks do
  local holder = holders[checks[number].scope_index]
  read_conduct(checks[number], holder.key, holder.warm, now, ARGV[1])
end
if ARGV[4] ~= '' then
  light = read_checks(ARGV[4], 1)
  -- There are as many hashes of light counters as of the others.
  load_light({}, KEYS, 3 + (#KEYS - 2) / 2, light, epoch, now)
  for number = 1, #light do
    read_conduct(light[number], light[number].hash.key, light[number].hash.is_known, now, ARGV[1])
  end
end
local answer = {
  DONE, real, now, last_id(KEYS[2]), pack_readings(checks, is_known), pack_readings(light, is_known), pack_conduct(checks),
  pack_conduct(light),
}
if cold then
  answer[1], answer[9], answer[10], answer[11] = COLD, cold.tenant, cold.holders, cold.counters
end
return answer
