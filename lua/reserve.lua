#!lua
-- reserve: holds amounts under all limits, or counts usage after the fact under the same limits; all of it or nothing.
-- KEYS     1 meta  2 outbox  3 reservation  4 tenant's state  5.. subjects' states
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes)  5 call (packed in gate/reserve.rs)  6 body
-- returns  { status, real time, time, outbox id, ... }
--          DONE: expiry, granted, readings    ALLOWED: granted, readings    REPLAYED, KEY_REUSED: record, readings
--          REFUSED: granted by a best effort, readings, refusing, waits in ms    COLD: tenant, holders, counters    ALARM: epoch found
-- event    reserve or usage, with the whole record
-- include plain/reserve

local plain, refused = plain_reserve()
if plain then
  return plain
end

-- include plain/refusal

if refused then
  return plain_refusal(refused)
end

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
-- include find_cold
-- include layout_of
-- include pack_units
-- include is_known
-- include pack_readings
-- include fit
-- include refusing_checks
-- include modes

-- read
local epoch, prefix = tonumber(ARGV[1]), key_prefix()
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local existing = read_record(redis.call('GET', KEYS[3]), epoch)
local mode, flags, ttl, max_life, valid_from, valid_until, windows_end, tombstone, due_ms, line_count, at =
  struct.unpack('<BBi8i8i8i8i8i8i8B', ARGV[5])
local amounts = {}
for line = 1, line_count do
  amounts[line], at = struct.unpack('<i8', ARGV[5], at)
end
local keyed, ledger_asked, may_be_known = flags % 2 == 1, flags % 4 >= 2, flags >= 4
local checks = read_checks(ARGV[5], at)
local expires_at = mode == USAGE and now or now + math.min(ttl, max_life)
local due = due_list(prefix, expires_at, due_ms, tonumber(facts[2]))
local holders = measure(state_keys(4), checks, epoch, now)
local cold = find_cold(holders, checks)

-- check
if existing then
  local known = is_same_call(existing, ARGV[6]) and REPLAYED or KEY_REUSED
  return { known, real, now, '', existing.raw, pack_readings(checks, is_known) }
end
local refused = out_of_time(real, now, facts[3])
if refused then
  return refused
end
local stale = now < valid_from or now >= valid_until
for number = 1, #checks do
  stale = stale or checks[number].later
end
if stale then
  return { STALE_WINDOW, real, now, '' }
end
if cold then
  return { COLD, real, now, last_id(KEYS[2]), cold.tenant, cold.holders, cold.counters }
end
if keyed and not ledger_asked and (may_be_known or now < holders[0].ask_until) then
  return { ASK_LEDGER, real, now, last_id(KEYS[2]) }
end
local refusing, waits = refusing_checks(amounts, checks, mode == BEST_EFFORT, now)
local granted, any = amounts, true
if mode == BEST_EFFORT or refusing ~= '' then
  granted, any = fit(amounts, checks)
end
if not any or (refusing ~= '' and mode ~= BEST_EFFORT) then
  return { REFUSED, real, now, '', pack_units(granted), pack_readings(checks, is_known), refusing, pack_units(waits) }
end
if mode == DRY_RUN then
  return { ALLOWED, real, now, '', pack_units(granted), pack_readings(checks, is_known) }
end

-- write
local held, consumed = {}, {}
for line = 1, line_count do
  held[line] = mode == USAGE and 0 or granted[line]
  consumed[line] = mode == USAGE and granted[line] or 0
end
local record = {
  layout = layout_of(checks), state = mode == USAGE and STATE_CONSUMED or STATE_RESERVED, count = line_count, step = 1, epoch = epoch,
  expires_at = expires_at, born_at = now, latest_expiry = mode == USAGE and now or now + max_life, sequence = 0,
  held = held, consumed = consumed,
}
for number = 1, #checks do
  local check = checks[number]
  for line = 1, line_count do
    local weight = check.weights[line]
    if weight then
      check.algorithm.charge(check, weight * consumed[line])
      check.algorithm.hold(check, weight * held[line], expires_at)
    end
  end
  check.moved = true
end
local id = admit(record, due, tombstone, holders, checks, windows_end, now)
return { DONE, real, now, id, expires_at, pack_units(granted), pack_readings(checks, is_known) }
