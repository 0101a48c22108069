#!lua
-- hold: holds amounts under light counters, which the gate alone keeps, or counts usage under them: all or nothing, or
--       as much as fits. Its record and the counters are all that it writes.
-- KEYS     1 meta  2 light holds by when they end  3 reservation  4 tenant's light counters  5.. its subjects', then
--          for guarded work its first submission
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 id (16 bytes), 0, first 16 bytes of the record
--          5 call (packed in gate/reserve.rs)  6 lines, if all of them are granted, and body
--          7.. of guarded work, `i8` for how many ms the same one is a duplicate, and the digits of its first
--          reservation where that was given up
-- returns  { status, real time, time, '', ... }
--          DONE: expiry, granted, readings, delay, shadows, conduct
--          ALLOWED: granted, readings, delay, shadows, conduct
--          REPLAYED, KEY_REUSED: record, readings
--          REFUSED: granted by a best effort, readings, refusing, waits in ms, shadows, conduct
--          DUPLICATE: first reservation, in hexadecimal digits    STALE_WINDOW    ALARM: epoch found
-- event    none
-- include prelude
-- include out_of_time
-- include integer
-- include keys/prefix
-- include states
-- include modes
-- include read_record
-- include read_checks
-- include is_same_call
-- include load_light
-- include layout_of
-- include record_values
-- include pack_record
-- include pack_units
-- include is_known
-- include pack_readings
-- include fit
-- include refusing_checks
-- include shadow_refusals
-- include longest_delay
-- include same_work
-- include remember_work
-- include read_conduct
-- include conduct_end
-- include banned_checks
-- include count_violations
-- include pack_conduct
-- include write_light

-- How long the record of an open hold outlives all that it may be asked for: what keeps the sweep away for less than
-- that strands no unit.
local SWEPT_WITHIN_MS = 30 * 86400000

-- read
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local epoch, hashes, holds = tonumber(ARGV[1]), {}, KEYS[2]
local existing = read_record(redis.call('GET', KEYS[3]), epoch)
local _, mode, line_count, life, longest_life, valid_from, valid_until, needed_until, tombstone, _, _, at =
  struct.unpack('<BBBi8i8i8i8i8i8i8i8', ARGV[5])
local amounts, nothing = {}, {}
for line = 1, line_count do
  local held, consumed = struct.unpack('<i8i8', ARGV[6], 16 * line - 15)
  amounts[line], nothing[line] = held + consumed, 0
end
local body = string.sub(ARGV[6], 16 * line_count + 1)
local checks = read_checks(ARGV[5], at)
load_light(hashes, KEYS, 4, checks, epoch, now)
local stale = now < valid_from or now >= valid_until
for number = 1, #checks do
  local check = checks[number]
  read_conduct(check, check.hash.key, check.hash.is_known, now, ARGV[1])
  stale = stale or check.later
end
local within = ARGV[7] and struct.unpack('<i8', ARGV[7])
local first = within and same_work(redis.call('GET', KEYS[#KEYS]), within, now, epoch, key_prefix(), string.sub(ARGV[7], 9))
-- A list of another type fails here, before anything is written.
redis.call('ZCARD', holds)

-- check
if existing then
  local known = is_same_call(existing, body) and REPLAYED or KEY_REUSED
  return { known, real, now, '', existing.raw, pack_readings(checks, is_known) }
end
local refused = out_of_time(real, now, facts[3])
if refused then
  return refused
end
if stale then
  return { STALE_WINDOW, real, now, '' }
end
local banned, left = banned_checks(checks, now)
if banned ~= '' then
  local conduct = pack_conduct(checks)
  return { REFUSED, real, now, '', pack_units(nothing), pack_readings(checks, is_known), banned, pack_units(left), '', conduct }
end
if first then
  return { DUPLICATE, real, now, '', first }
end
local is_usage = mode == USAGE or mode == DRY_USAGE
local is_part_enough = mode == BEST_EFFORT or mode == DRY_BEST_EFFORT
local refusing, waits = refusing_checks(amounts, checks, is_part_enough, is_usage, now)
local granted, any = amounts, true
if mode == BEST_EFFORT or refusing ~= '' then
  granted, any = fit(amounts, checks, is_usage)
end
local shadows, unmoved = shadow_refusals(granted, checks, is_usage)
local is_dry = mode == DRY_RUN or mode == DRY_BEST_EFFORT or mode == DRY_USAGE
local is_refused = not any or (refusing ~= '' and mode ~= BEST_EFFORT)
local delay = is_refused and 0 or longest_delay(checks)
if is_dry and not is_refused then
  return { ALLOWED, real, now, '', pack_units(granted), pack_readings(checks, is_known), delay, shadows, pack_conduct(checks) }
end

-- write
if is_refused then
  if not is_dry then
    count_violations(checks, refusing, amounts, is_part_enough, is_usage, string.sub(ARGV[4], 1, 16), now)
  end
  for number = 1, #checks do
    local hash, punishment = checks[number].hash, checks[number].punishment
    if punishment and punishment.moved then
      hash.needed_until = math.max(hash.needed_until, conduct_end(punishment))
    end
  end
  write_light(hashes, epoch, now, ARGV[3] == '')
  return {
    REFUSED, real, now, '', pack_units(granted), pack_readings(checks, is_known), refusing, pack_units(waits), shadows, pack_conduct(checks),
  }
end
local expires_at, hex = now + life, string.sub(KEYS[3], -32)
local held, consumed = is_usage and nothing or granted, is_usage and granted or nothing
for number = 1, #checks do
  local check = checks[number]
  if not check.unmoved then
    for line, weight in pairs(check.weights) do
      check.algorithm.charge(check, weight * consumed[line])
    end
    check.algorithm.hold(check, check.algorithm.held(check, held, consumed), expires_at)
    check.moved, check.id = true, hex
    -- What refuses nothing may hold more than its capacity, and takes longer to forget it.
    local forgotten_at = check.algorithm.resets_at(check)
    check.hash.needed_until = math.max(check.hash.needed_until, needed_until, forgotten_at, expires_at)
  end
end
local values, format = record_values({
  layout = layout_of(checks) + (unmoved > 0 and 2 or 0), state = is_usage and STATE_CONSUMED or STATE_RESERVED, count = line_count, step = 1,
  epoch = epoch, expires_at = expires_at, born_at = now, latest_expiry = now + longest_life, sequence = 0, held = held, consumed = consumed,
  start_after = delay, unmoved = unmoved,
})
local stored = pack_record(values, format, 0, body)
if is_usage then
  redis.call('SET', KEYS[3], stored, 'PX', tombstone)
else
  if ARGV[3] == '' then
    redis.call('SET', KEYS[3], stored, 'PXAT', integer(now + longest_life + tombstone + SWEPT_WITHIN_MS))
  else
    redis.call('SET', KEYS[3], stored)
  end
  redis.call('ZADD', holds, integer(expires_at), hex)
end
write_light(hashes, epoch, now, ARGV[3] == '')
if within then
  remember_work(KEYS[#KEYS], within, hex, now, epoch, ARGV[3] == '')
end
return { DONE, real, now, '', expires_at, pack_units(granted), pack_readings(checks, is_known), delay, shadows, pack_conduct(checks) }
