#!lua flags=allow-oom
-- A quota's new capacity, an absolute with a version; a lower or equal one is ignored.
--
-- KEYS  1 meta  2 the tenant's state
-- ARGV  1 epoch  2 not_after (real ms)  3 now (test clock, ms, or empty)  4 field (c8)  5 packed capacity
-- Returns {status, real time, now}: ALARM {epoch found} · TOO_LATE · COLD · KEPT · DONE
-- Event none
-- include status
-- include clock

local real, now = clock(ARGV[3])
local meta = redis.call('HGET', KEYS[1], 'epoch')
if meta ~= ARGV[1] then
  return { ALARM, real, now, meta or '' }
end
local header = redis.call('HGET', KEYS[2], 'h')
local stored = redis.call('HGET', KEYS[2], 'q' .. ARGV[4])
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now }
end
if not header or struct.unpack('<i8', header) ~= tonumber(ARGV[1]) then
  return { COLD, real, now }
end
if stored and struct.unpack('<i8', stored) >= struct.unpack('<i8', ARGV[5]) then
  return { KEPT, real, now }
end
redis.call('HSET', KEYS[2], 'q' .. ARGV[4], ARGV[5])
return { DONE, real, now }
