#!lua
-- record: takes over what no limit refuses: an admission granted during an outage, or work of a past time. Only
--         counters move whose window is current by the script's own clock, or is the last one that they counted.
-- KEYS     1 meta  2 outbox  3 reservation  4 tenant's state  5.. subjects' states
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes)  5 call (packed in gate/record.rs)  6 body
-- returns  { status, real time, time, outbox id, ... }
--          DONE    REPLAYED, KEY_REUSED: record    TOO_LARGE: a counter would be beyond the largest amount, or below 0
--          STALE_WINDOW: a window has not begun    COLD: tenant, state hashes, counters    ASK_LEDGER
--          ALARM: epoch found
-- event    reserve or usage, with the whole record, at the time when it was taken
-- include prelude
-- include out_of_time
-- include last_id
-- include keys/prefix
-- include due_list
-- include read_record
-- include read_checks
-- include is_same_call
-- include state_keys
-- include measure
-- include admit
-- include layout_of
-- include recorded_checks

-- read
local epoch, prefix = tonumber(ARGV[1]), key_prefix()
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local existing = read_record(redis.call('GET', KEYS[3]), epoch)
local flags, taken_at, born_at, expires_at, latest_expiry, tombstone, due_ms, line_count, at =
  struct.unpack('<Bi8i8i8i8i8i8B', ARGV[5])
local is_usage, degraded, asks, asked = flags % 2 == 1, flags % 4 >= 2, flags % 8 >= 4, flags % 16 >= 8
-- A correction has the bits of a record's flags; one that takes back lowers what it counts.
local correction, sign = flags >= 16 and (flags >= 32 and 96 or 32) or 0, flags >= 32 and -1 or 1
taken_at = taken_at > 0 and taken_at or now
local amounts, ends, end_count = {}, {}, nil
for line = 1, line_count do
  amounts[line], at = struct.unpack('<i8', ARGV[5], at)
end
end_count, at = struct.unpack('<B', ARGV[5], at)
local windows_end = 0
for number = 1, end_count do
  ends[number], at = struct.unpack('<i8', ARGV[5], at)
  windows_end = math.max(windows_end, ends[number])
end
local checks = read_checks(ARGV[5], at)
local due = due_list(prefix, expires_at, due_ms, tonumber(facts[2]))
local holders = measure(state_keys(4), checks, epoch, now)
local cold = recorded_checks(holders, checks, ends, now)

-- check
if existing then
  return { is_same_call(existing, ARGV[6]) and REPLAYED or KEY_REUSED, real, now, '', existing.raw }
end
local refused = out_of_time(real, now, facts[3])
if refused then
  return refused
end
for _, check in ipairs(checks) do
  if now < check.began then
    return { STALE_WINDOW, real, now, '' }
  end
end
if cold then
  return { COLD, real, now, last_id(KEYS[2]), cold.tenant, cold.holders, cold.counters }
end
if not asked and (asks or now < holders[0].ask_until) then
  return { ASK_LEDGER, real, now, last_id(KEYS[2]) }
end
local held, consumed = {}, {}
for line = 1, line_count do
  held[line] = is_usage and 0 or amounts[line]
  consumed[line] = is_usage and amounts[line] or 0
end
for _, check in ipairs(checks) do
  if check.algorithm.is_timeless then
    check.mark = math.min(check.mark, born_at)
  end
  for line, weight in pairs(check.weights) do
    check.algorithm.charge(check, sign * weight * consumed[line])
  end
  -- One that no ledger restores may have counted less than is taken back: in shadow, or since a loss of memory.
  if check.rate and check.consumed < 0 then
    check.consumed = 0
  end
  check.algorithm.hold(check, check.algorithm.held(check, held, consumed), expires_at)
  if check.moved and (check.consumed > 9e15 or check.reserved > 9e15 or check.consumed < 0) then
    return { TOO_LARGE, real, now, '' }
  end
end

-- write
local record = {
  layout = layout_of(checks), state = is_usage and STATE_CONSUMED or STATE_RESERVED, count = line_count, step = 1,
  epoch = epoch, degraded = degraded, expires_at = expires_at, born_at = born_at, latest_expiry = latest_expiry,
  sequence = 0, held = held, consumed = consumed, correction = correction, id = ARGV[4], body = ARGV[6],
}
return { DONE, real, now, admit(record, due, tombstone, holders, checks, windows_end, now, taken_at) }
