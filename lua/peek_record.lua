#!lua flags=no-writes
-- peek_record: reads one reservation.
-- KEYS     1 meta  2 outbox  3 reservation
-- ARGV     1 epoch  2 now ('' = Redis's)  3 bound tenant ('' = none)
-- returns  { status, real time, time, outbox's last id, ... }
--          DONE: record    UNKNOWN (none of this epoch, or another tenant's)    ALARM: epoch found
-- event    none
-- include statuses
-- include clock
-- include last_id
-- include read_record
-- include read_body

local real, now = clock(ARGV[2])
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then
  return { ALARM, real, now, '', epoch or '' }
end
local raw = redis.call('GET', KEYS[3])
local record = read_record(raw, tonumber(epoch))
if record then
  read_body(record)
end
if not record or (ARGV[3] ~= '' and ARGV[3] ~= record.tenant) then
  return { UNKNOWN, real, now, last_id(KEYS[2]) }
end
return { DONE, real, now, last_id(KEYS[2]), raw }
