#!lua flags=allow-oom
-- capacity: sets new capacities of quotas from the ledger; a version that is not higher than the stored one is ignored.
-- KEYS     1 meta  2 outbox, then per capacity its tenant's state
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's), then per capacity field and capacity
-- returns  { status, real time, time, '', ... }
--          DONE: a status for each, as bytes: DONE, KEPT: as new or newer is stored, COLD: the whole hash is cold
--          ALARM: epoch found
-- event    none
-- include prelude
-- include out_of_time

local function set_capacity(tenant, field, capacity)
  local stored = redis.call('HMGET', tenant, 'h', field)
  if not stored[1] or struct.unpack('<i8', stored[1]) ~= tonumber(ARGV[1]) then
    return COLD
  end
  if stored[2] and struct.unpack('<i8', stored[2]) >= struct.unpack('<i8', capacity) then
    return KEPT
  end
  redis.call('HSET', tenant, field, capacity)
  return DONE
end

-- check
local real, now, _, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local late = out_of_time(real, now)
if late then
  return late
end

-- write
local statuses = {}
for number = 1, #KEYS - 2 do
  local status = set_capacity(KEYS[2 + number], ARGV[2 + 2 * number], ARGV[3 + 2 * number])
  statuses[number] = string.char(status)
end
return { DONE, real, now, '', table.concat(statuses) }
