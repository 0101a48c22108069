#!lua
-- repair: adds to one counter what a checkpoint found missing in it; once for each checkpoint.
-- KEYS     1 meta  2 outbox  3 state
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 checkpoint's id (16 bytes)  5 checkpoint's sequence  6 field
--          7 window start  8 window end  9 consumed to add  10 reserved to add
-- returns  { status, real time, time, outbox's last id }
--          DONE    REPLAYED: this checkpoint did it before    STALE_WINDOW: another window
--          COLD: the whole hash is cold
--          TOO_LARGE: out of bounds    KEPT: repaired or restored since the checkpoint    ALARM: epoch found
-- event    none: the figures come from the ledger
-- include prelude
-- include out_of_time
-- include last_id
-- include last_sequence
-- include told_sequence
-- include algorithms

-- read
local state, field, marker = KEYS[3], ARGV[6], 'r' .. ARGV[6]
local real, now, _, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local stored = redis.call('HMGET', state, 'h', field, marker)
local last, sequence = last_id(KEYS[2]), last_sequence(KEYS[2], ARGV[1])
local warm = stored[1] and struct.unpack('<i8', stored[1]) == tonumber(ARGV[1])
local repaired_at, repaired_by = -1, ''
if warm and stored[3] then
  repaired_at, repaired_by = struct.unpack('<i8c16', stored[3])
end
local calendar = algorithm_of(CALENDAR)
local counter = {
  began = tonumber(ARGV[7]), window_end = tonumber(ARGV[8]), mark = 0, consumed = 0, reserved = 0, next_end = 0, later = false,
}
calendar.load(counter, warm and stored[2])

-- check
if repaired_by == ARGV[4] then
  return { REPLAYED, real, now, last }
end
local refused = out_of_time(real, now)
if refused then
  return refused
end
if not calendar.is_open(counter, now) then
  return { STALE_WINDOW, real, now, '' }
end
if not warm then
  return { COLD, real, now, last }
end
local consumed, reserved = counter.consumed + tonumber(ARGV[9]), counter.reserved + tonumber(ARGV[10])
if consumed < 0 or reserved < 0 or consumed + reserved > 9e15 then
  return { TOO_LARGE, real, now, last }
end
if math.max(repaired_at, told_sequence(stored[1])) >= tonumber(ARGV[5]) then
  return { KEPT, real, now, last }
end

-- write
counter.consumed, counter.reserved = consumed, reserved
if reserved == 0 or tonumber(ARGV[10]) > 0 then
  counter.next_end = 0
end
redis.call('HSET', state, field, calendar.save(counter),
  marker, struct.pack('<i8c16', sequence, ARGV[4]))
return { DONE, real, now, last }
