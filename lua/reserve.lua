#!lua
-- reserve: holds amounts under all limits, or counts usage after the fact under the same limits; all of it or nothing.
-- KEYS     1 meta  2 outbox  3 reservation  4 tenant's state  5.. subjects' states
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes)  5 call (packed in gate/reserve.rs)  6 body
-- returns  { status, real time, time, outbox id, ... }
--          DONE: expiry, granted, readings    ALLOWED: granted, readings    REPLAYED: record, readings
--          REFUSED: granted by a best effort, readings, refusing    COLD: tenant, holders, counters    ALARM: epoch found
-- event    reserve or usage, with the whole record
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
-- include find_cold
-- include record_values
-- include pack_record
-- include pack_event
-- include pack_units
-- include pack_readings
-- include write_counters
-- include fit
-- include refusing_checks

local ALL_OR_NOTHING, BEST_EFFORT, DRY_RUN, USAGE = 0, 1, 2, 3

-- read
local meta, outbox, reservation = KEYS[1], KEYS[2], KEYS[3]
local prefix = string.sub(meta, 1, -5)
local epoch = tonumber(ARGV[1])
local real, now = clock(ARGV[3])
local mode, flags, ttl, max_life, valid_from, valid_until, tombstone, due_ms, line_count, at =
  struct.unpack('<BBi8i8i8i8i8i8B', ARGV[5])
local amounts = {}
for line = 1, line_count do
  amounts[line], at = struct.unpack('<i8', ARGV[5], at)
end
local keyed, ledger_asked = flags % 2 == 1, flags >= 2
local checks = read_checks(ARGV[5], at)
local found = redis.call('HMGET', meta, 'epoch', 'swept', 'floor')
if found[1] ~= ARGV[1] or not found[2] then
  return { ALARM, real, now, '', found[1] or '' }
end
local raw = redis.call('GET', reservation)
local expires_at = mode == USAGE and now or now + math.min(ttl, max_life)
local due = due_key(prefix, expires_at, due_ms, tonumber(found[2]))
redis.call('LLEN', due)
local keys = {}
for number = 4, #KEYS do
  keys[number - 3] = KEYS[number]
end
local holders = measure(keys, checks, epoch, now)
local cold = find_cold(holders, checks)
local function is_current(check)
  return check.known and not check.later
end

-- check
local existing = read_record(raw, epoch)
if existing then
  if string.sub(existing.raw, existing.body_at, existing.body_at + 15) ~= string.sub(ARGV[6], 1, 16) then
    return { KEY_REUSED, real, now, '' }
  end
  return { REPLAYED, real, now, '', raw, pack_readings(checks, is_current) }
end
if real > tonumber(ARGV[2]) then
  return { TOO_LATE, real, now, '' }
end
if before_floor(found[3], real, now) then
  return { TOO_EARLY, real, now, '' }
end
local stale = now < valid_from or now >= valid_until
for number = 1, #checks do
  stale = stale or checks[number].later
end
if stale then
  return { STALE_WINDOW, real, now, '' }
end
if cold then
  return { COLD, real, now, last_id(outbox), cold.tenant, cold.holders, cold.counters }
end
if keyed and not ledger_asked and now < holders[0].ask_until then
  return { ASK_LEDGER, real, now, last_id(outbox) }
end
local refusing = refusing_checks(amounts, checks)
local granted, any = amounts, true
if mode == BEST_EFFORT or refusing ~= '' then
  granted, any = fit(amounts, checks)
end
if not any or (refusing ~= '' and mode ~= BEST_EFFORT) then
  return { REFUSED, real, now, '', pack_units(granted), pack_readings(checks, is_current), refusing }
end
if mode == DRY_RUN then
  return { ALLOWED, real, now, '', pack_units(granted), pack_readings(checks, is_current) }
end

-- write
local held, consumed = {}, {}
for line = 1, line_count do
  held[line] = mode == USAGE and 0 or granted[line]
  consumed[line] = mode == USAGE and granted[line] or 0
end
local record = {
  state = mode == USAGE and STATE_CONSUMED or STATE_RESERVED, count = line_count, step = 1, epoch = epoch,
  expires_at = expires_at, born_at = now, latest_expiry = mode == USAGE and now or now + max_life, sequence = 0,
  held = held, consumed = consumed,
}
local values, format = record_values(record)
local kind = mode == USAGE and EVENT_USAGE or EVENT_RESERVE
local id = append(outbox, ARGV[1], pack_event(kind, now, ARGV[4], 0, values, format, ARGV[6]))
local sequence = sequence_of(id, ARGV[1])
if mode == USAGE then
  local core_length = struct.unpack('<I2', ARGV[6], 17)
  redis.call('SET', reservation, pack_record(values, format, sequence, string.sub(ARGV[6], 1, core_length)), 'PX', tombstone)
else
  redis.call('SET', reservation, pack_record(values, format, sequence, ARGV[6]))
  redis.call('RPUSH', due, string.sub(reservation, -32))
end
for number = 1, #checks do
  local check = checks[number]
  for line = 1, line_count do
    local weight = check.weights[line]
    if weight then
      check.consumed = check.consumed + weight * consumed[line]
      check.reserved = check.reserved + weight * held[line]
    end
  end
  if mode ~= USAGE and (check.next_end == 0 or expires_at < check.next_end) then
    check.next_end = expires_at
  end
  check.moved = true
end
write_counters(holders, checks)
return { DONE, real, now, id, expires_at, pack_units(granted), pack_readings(checks, is_current) }
