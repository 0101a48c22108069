#!lua flags=no-writes
-- peek_record: reads one reservation.
-- KEYS     1 meta  2 outbox  3 reservation
-- ARGV     1 epoch  2 now ('' = Redis's)  3 bound tenant ('' = none)
-- returns  { status, real time, time, outbox's last id, ... }
--          DONE: record    UNKNOWN: none of this epoch, or another tenant's    ALARM: epoch found
-- event    none
-- include prelude
-- include last_id
-- include find_record

local real, now, _, alarm = prelude(ARGV[2])
if alarm then
  return alarm
end
local record = find_record(tonumber(ARGV[1]), ARGV[3])
if not record then
  return { UNKNOWN, real, now, last_id(KEYS[2]) }
end
return { DONE, real, now, last_id(KEYS[2]), record.raw }
