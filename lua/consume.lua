#!lua {flags}
-- Moves a reservation's totals and, when final or late, resolves it. Totals are for the reservation so far.
--
-- KEYS  1 meta  2 outbox  3 reservation
-- ARGV  1 epoch  2 not_after (real ms)  3 now (test clock, ms, or empty)  4 the caller's tenant, or empty  5 prefix of states
--       6 id (16 bytes)  7 tombstone life, keyed (ms)  8 tombstone life, unkeyed (ms)  9 totals (include/resolve)  10 1 when final
-- Returns {status, real time, now, …}: ALARM {epoch found} · UNKNOWN {last id} · REPLAYED, ALREADY_RESOLVED, EXPIRED {record,
--       readings} · COLD {last id, tenant cold, subjects, counters, record} · AMOUNT_NEEDS_ONE_LINE · METER_NOT_RESERVED {meter} ·
--       TOO_PRECISE, TOO_LARGE, AMOUNT_DECREASED, EXCESS_REJECTED {line, record} · DONE {record, readings, sequence, totals before, uncharged}
-- Event consume (3)
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
return consume(record, {
  real = real, now = now, epoch = epoch, totals = ARGV[9], is_final = ARGV[10] == '1',
  otherwise = function(line)
    if ARGV[10] == '1' or record.state ~= 1 then
      return math.max(record.held[line], record.consumed[line])
    end
    return record.consumed[line]
  end,
})
