#!lua
-- record: holds or counts what was admitted while the gate was away. No limit refuses it any more; only counters whose window
--         is current by the script's own clock, or was the last one they counted, move.
-- KEYS     1 meta  2 outbox  3 reservation  4 tenant's state  5.. subjects' states
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes)  5 call (packed in gate/record.rs)  6 body
-- returns  { status, real time, time, outbox id, ... }
--          DONE    REPLAYED, KEY_REUSED: the id is known    TOO_LARGE: a counter would be beyond the largest amount
--          STALE_WINDOW: a window has not begun    COLD: tenant, holders, counters    ASK_LEDGER    ALARM: epoch found
-- event    reserve or usage, with the whole record, at the time of its admission and flagged as degraded
-- include statuses
-- include states
-- include kinds
-- include clock
-- include before_floor
-- include last_id
-- include append
-- include sequence_of
-- include due_key
-- include read_record
-- include read_checks
-- include measure
-- include recorded_checks
-- include record_values
-- include pack_record
-- include pack_event
-- include write_counters

-- read
local meta, outbox, reservation = KEYS[1], KEYS[2], KEYS[3]
local prefix = string.sub(meta, 1, -5)
local epoch = tonumber(ARGV[1])
local real, now = clock(ARGV[3])
local is_usage, asked, taken_at, expires_at, latest_expiry, tombstone, due_ms, line_count, at =
  struct.unpack('<BBi8i8i8i8i8B', ARGV[5])
is_usage, asked = is_usage == 1, asked == 1
local amounts, ends, end_count = {}, {}, nil
for line = 1, line_count do
  amounts[line], at = struct.unpack('<i8', ARGV[5], at)
end
end_count, at = struct.unpack('<B', ARGV[5], at)
for number = 1, end_count do
  ends[number], at = struct.unpack('<i8', ARGV[5], at)
end
local checks = read_checks(ARGV[5], at)
local found = redis.call('HMGET', meta, 'epoch', 'swept', 'floor')
if found[1] ~= ARGV[1] or not found[2] then
  return { ALARM, real, now, '', found[1] or '' }
end
local raw = redis.call('GET', reservation)
local due = due_key(prefix, expires_at, due_ms, tonumber(found[2]))
redis.call('LLEN', due)
local keys = {}
for number = 4, #KEYS do
  keys[number - 3] = KEYS[number]
end
local holders = measure(keys, checks, epoch, now)
local cold = recorded_checks(holders, checks, ends, now)

-- check
local existing = read_record(raw, epoch)
if existing then
  local same = string.sub(raw, existing.body_at, existing.body_at + 15) == string.sub(ARGV[6], 1, 16)
  return { same and REPLAYED or KEY_REUSED, real, now, '' }
end
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now, '' }
end
if before_floor(found[3], real, now) then
  return { TOO_EARLY, real, now, '' }
end
for _, check in ipairs(checks) do
  if now < check.window then
    return { STALE_WINDOW, real, now, '' }
  end
end
if cold then
  return { COLD, real, now, last_id(outbox), cold.tenant, cold.holders, cold.counters }
end
if not asked then
  return { ASK_LEDGER, real, now, last_id(outbox) }
end
for _, check in ipairs(checks) do
  for line, weight in pairs(check.weights) do
    if is_usage then
      check.consumed = check.consumed + weight * amounts[line]
    else
      check.reserved = check.reserved + weight * amounts[line]
    end
  end
  if check.moved and (check.consumed > 9e15 or check.reserved > 9e15) then
    return { TOO_LARGE, real, now, '' }
  end
  if not is_usage and (check.next_end == 0 or expires_at < check.next_end) then
    check.next_end = expires_at
  end
end

-- write
local record = {
  state = is_usage and STATE_CONSUMED or STATE_RESERVED, count = line_count, step = 1, epoch = epoch, degraded = true,
  expires_at = expires_at, born_at = taken_at, latest_expiry = latest_expiry, sequence = 0, held = {}, consumed = {},
}
for line = 1, line_count do
  record.held[line] = is_usage and 0 or amounts[line]
  record.consumed[line] = is_usage and amounts[line] or 0
end
local kind = is_usage and EVENT_USAGE or EVENT_RESERVE
local values, format = record_values(record)
local id = append(outbox, ARGV[1], pack_event(kind, taken_at, ARGV[4], 0, values, format, ARGV[6]))
local sequence = sequence_of(id, ARGV[1])
if is_usage then
  local core_length = struct.unpack('<I2', ARGV[6], 17)
  redis.call('SET', reservation, pack_record(values, format, sequence, string.sub(ARGV[6], 1, core_length)), 'PX', tombstone)
else
  redis.call('SET', reservation, pack_record(values, format, sequence, ARGV[6]))
  redis.call('RPUSH', due, string.sub(reservation, -32))
end
write_counters(holders, checks)
return { DONE, real, now, id }
