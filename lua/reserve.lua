#!lua
-- reserve: holds amounts under all limits, or counts usage after the fact under the same limits; all or nothing.
-- KEYS     1 meta  2 outbox  3 reservation  4 due list in which the hold is expected to end  5 tenant's state
--          6.. subjects' states, then for guarded work its first submission
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes), 0, first 16 bytes of the record
--          5 call (packed in gate/reserve.rs)  6 lines, if all of them are granted, and body
--          7.. of guarded work, `i8` for how many ms the same one is a duplicate, and the digits of its first
--          reservation where the ledger knows that it was given up
-- returns  { status, real time, time, outbox id, ... }
--          DONE: expiry, granted, readings, delay, shadows, conduct
--          ALLOWED: granted, readings, delay, shadows, conduct
--          REPLAYED, KEY_REUSED: record, readings
--          REFUSED: granted by a best effort, readings, refusing, waits in ms, shadows, conduct
--          COLD: tenant (2: only bounds), state hashes, counters    (shadows: which shadow limits would have refused)
--          conduct: what limits with a punishment remember of whom they count
--          DUPLICATE: first reservation, in hexadecimal digits    ALARM: epoch found
--          By the plain path DONE: expiry, '', '', cells, capacities of quotas
--          REFUSED: '', '', refusing, cells, capacities of quotas
-- event    reserve or usage, with the whole record
-- include prelude
-- include plain/reserve

local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local plain = plain_reserve(real, now, facts, 3, 4)
if plain then
  return plain
end

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
-- include shadow_refusals
-- include unsettled_quotas
-- include longest_delay
-- include modes
-- include same_work
-- include remember_work
-- include read_conduct
-- include banned_checks
-- include count_violations
-- include write_conduct
-- include pack_conduct

-- read
local epoch, prefix = tonumber(ARGV[1]), key_prefix()
local existing = read_record(redis.call('GET', KEYS[3]), epoch)
local flags, mode, line_count, life, longest_life, valid_from, valid_until, windows_end, tombstone, due_ms, _, at =
  struct.unpack('<BBBi8i8i8i8i8i8i8i8', ARGV[5])
local amounts = {}
for line = 1, line_count do
  local held, consumed = struct.unpack('<i8i8', ARGV[6], 16 * line - 15)
  amounts[line] = held + consumed
end
local body = string.sub(ARGV[6], 16 * line_count + 1)
local keyed, ledger_asked, may_be_known = flags % 2 == 1, flags % 4 >= 2, flags % 8 >= 4
local checks = read_checks(ARGV[5], at)
local expires_at = now + life
local due = due_list(prefix, expires_at, due_ms, tonumber(facts[2]))
local holders = measure(state_keys(5), checks, epoch, now)
local cold = find_cold(holders, checks)
for number = 1, #checks do
  local holder = holders[checks[number].scope_index]
  read_conduct(checks[number], holder.key, holder.warm, now, ARGV[1])
end
local within = ARGV[7] and struct.unpack('<i8', ARGV[7])
local first = within and same_work(redis.call('GET', KEYS[#KEYS]), within, now, epoch, prefix, string.sub(ARGV[7], 9))

-- check
if existing then
  local known = is_same_call(existing, body) and REPLAYED or KEY_REUSED
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
local banned, left = banned_checks(checks, now)
if banned ~= '' then
  local nothing = {}
  for line = 1, line_count do
    nothing[line] = 0
  end
  nothing = pack_units(nothing)
  return { REFUSED, real, now, '', nothing, pack_readings(checks, is_known), banned, pack_units(left), '', pack_conduct(checks) }
end
if first then
  return { DUPLICATE, real, now, '', first }
end
local is_usage = mode == USAGE or mode == DRY_USAGE
local refusing, waits = refusing_checks(amounts, checks, mode == BEST_EFFORT or mode == DRY_BEST_EFFORT, is_usage, now)
local unsettled = unsettled_quotas(checks, refusing)
if unsettled ~= '' then
  return { COLD, real, now, last_id(KEYS[2]), 2, '', unsettled }
end
local granted, any = amounts, true
if mode == BEST_EFFORT or refusing ~= '' then
  granted, any = fit(amounts, checks, is_usage)
end
local shadows, unmoved = shadow_refusals(granted, checks, is_usage)
local is_dry = mode == DRY_RUN or mode == DRY_BEST_EFFORT or mode == DRY_USAGE
local is_refused = not any or (refusing ~= '' and mode ~= BEST_EFFORT)
if is_refused and not is_dry then
  count_violations(checks, refusing, amounts, mode == BEST_EFFORT, is_usage, string.sub(ARGV[4], 1, 16), now)
end
local delay = is_refused and 0 or longest_delay(checks)
if is_dry and not is_refused then
  return { ALLOWED, real, now, '', pack_units(granted), pack_readings(checks, is_known), delay, shadows, pack_conduct(checks) }
end

-- write
if is_refused then
  write_conduct(holders, checks, epoch, now, ARGV[3] == '')
  return {
    REFUSED, real, now, '', pack_units(granted), pack_readings(checks, is_known), refusing, pack_units(waits), shadows, pack_conduct(checks),
  }
end
local held, consumed, hex = {}, {}, string.sub(KEYS[3], -32)
for line = 1, line_count do
  held[line] = is_usage and 0 or granted[line]
  consumed[line] = is_usage and granted[line] or 0
end
local record = {
  layout = layout_of(checks) + (unmoved > 0 and 2 or 0), state = is_usage and STATE_CONSUMED or STATE_RESERVED, count = line_count, step = 1, epoch = epoch,
  expires_at = expires_at, born_at = now, latest_expiry = now + longest_life, sequence = 0, held = held, consumed = consumed, start_after = delay,
  unmoved = unmoved,
  id = string.sub(ARGV[4], 1, 16), body = body,
}
for number = 1, #checks do
  local check = checks[number]
  if not check.unmoved then
    check.moved, check.id = true, hex
    if is_usage then
      for line, weight in pairs(check.weights) do
        check.algorithm.charge(check, weight * consumed[line])
      end
    else
      check.algorithm.hold(check, check.algorithm.held(check, held, consumed), expires_at)
    end
  end
end
local id = admit(record, due, tombstone, holders, checks, windows_end, now, now)
if within then
  remember_work(KEYS[#KEYS], within, hex, now, epoch, ARGV[3] == '')
end
return { DONE, real, now, id, expires_at, pack_units(granted), pack_readings(checks, is_known), delay, shadows, pack_conduct(checks) }
