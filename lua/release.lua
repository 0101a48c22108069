#!lua flags=allow-oom
-- Gives back what a reservation still holds; what was incurred before the work was given up is charged.
--
-- KEYS  1 meta  2 outbox  3 reservation
-- ARGV  1 epoch  2 not_after (real ms)  3 now (test clock, ms, or empty)  4 the caller's tenant, or empty  5 prefix of states
--       6 id (16 bytes)  7 tombstone life, keyed (ms)  8 tombstone life, unkeyed (ms)  9 incurred totals (include/resolve)
-- Returns as consume
-- Event release (4); consume (3) where something was incurred on an expired reservation
-- include status
-- include clock
-- include last_id
-- include record
-- include counters
-- include outbox
-- include resolve
-- include consume

local real, now = clock(ARGV[3])
local meta = redis.call('HGET', KEYS[1], 'epoch')
if meta ~= ARGV[1] then
  return { ALARM, real, now, meta or '' }
end
local epoch = tonumber(ARGV[1])
local record = load_record(KEYS[3], epoch, ARGV[4])
if not record then
  return { UNKNOWN, real, now, last_id(KEYS[2]) }
end
if record.state == 3 then
  return { REPLAYED, real, now, record.packed, '' }
end
if record.state == 4 and string.byte(ARGV[9], 1) == 0 then
  return { EXPIRED, real, now, record.packed, '' }
end
local call = {
  real = real, now = now, epoch = epoch, totals = ARGV[9], is_final = true,
  otherwise = function(line)
    return record.consumed[line]
  end,
}
if record.state ~= 4 then
  call.kind, call.final_state = 4, 3
end
return consume(record, call)
