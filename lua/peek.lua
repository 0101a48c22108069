#!lua flags=no-writes
-- Reads only: counters of a tenant and its subjects, or one reservation.
--
-- KEYS  1 meta  2 outbox  3 reservation, or the tenant's state  4… the subjects' states
-- ARGV  1 epoch  2 unused  3 now (test clock, ms, or empty)  4 `record` or `counters`  5 the caller's tenant, or empty
--       6 checks (include/counters)
-- Returns {status, real time, now, …}: ALARM {epoch found} · UNKNOWN {last id} · DONE {record, last id} for a record ·
--       DONE {readings, last id, tenant cold, subjects, counters} for counters
-- Event none
-- include status
-- include clock
-- include last_id
-- include record
-- include counters

local real, now = clock(ARGV[3])
local meta = redis.call('HGET', KEYS[1], 'epoch')
if meta ~= ARGV[1] then
  return { ALARM, real, now, meta or '' }
end
local epoch = tonumber(ARGV[1])
if ARGV[4] == 'record' then
  local packed = redis.call('GET', KEYS[3])
  if packed then
    local record = read_record(packed)
    read_core(record)
    if record.epoch == epoch and (ARGV[5] == '' or ARGV[5] == record.tenant) then
      return { DONE, real, now, packed, last_id(KEYS[2]) }
    end
  end
  return { UNKNOWN, real, now, last_id(KEYS[2]) }
end
local states = {}
for holder = 0, #KEYS - 3 do
  states[holder] = KEYS[3 + holder]
end
local checks = read_checks(ARGV[6])
local seen = read_counters(states, #KEYS - 3, checks, epoch, now)
return {
  DONE, real, now, pack_readings(checks), last_id(KEYS[2]), seen.tenant_cold, table.concat(seen.cold_holders),
  table.concat(seen.cold_counters),
}
