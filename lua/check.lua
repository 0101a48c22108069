#!lua
-- check: counts amounts under light counters, which the gate alone keeps: each check all of it or nothing, or all
--        checks or none. Loaded twice: as check with this first line, as look, for calls that write nothing, with
--        flags=no-writes, so that it answers when memory is full.
-- KEYS     1 meta  2.. per check the tenant's light counters, then its subjects'
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 as bytes: 1 for all or none, else 0; how many keys each check
--          has  5.. per check what it asks for (packed in gate/check.rs)
-- returns  { status, real time, time, '', ... }
--          DONE: number of checks, per check which of its counters refuse, for how long each in ms, readings,
--          which shadow limits would have refused, delay, what limits with a punishment remember
--          STALE_WINDOW    ALARM: epoch found
--          By the plain path a text: `B whether its counter refuses  i8 real time  i8 time`, cell
-- event    none
-- include plain/check

local plain = plain_check()
if plain then
  return plain
end

-- include prelude
-- include out_of_time
-- include read_checks
-- include load_light
-- include reload_light
-- include is_known
-- include pack_readings
-- include pack_units
-- include refusing_checks
-- include shadow_refusals
-- include longest_delay
-- include write_light
-- include read_conduct
-- include banned_checks
-- include count_violations
-- include pack_conduct
-- include conduct_end

-- read
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local epoch, hashes, checks, key = tonumber(ARGV[1]), {}, {}, 2
local is_stale, is_refused, only_looks, has_violations, together = false, false, true, false, string.byte(ARGV[4]) == 1
for number = 1, #ARGV[4] - 1 do
  local packed = ARGV[4 + number]
  local flags, line_count, valid_from, valid_until, needed_until, at = struct.unpack('<BBi8i8i8', packed)
  at = flags >= 2 and at + 41 or at
  local amounts = { struct.unpack('<' .. string.rep('i8', line_count), packed, at) }
  amounts[line_count + 1] = nil
  local counters = read_checks(packed, at + 8 * line_count)
  load_light(hashes, KEYS, key, counters, epoch, now)
  is_stale = is_stale or now < valid_from or now >= valid_until
  -- Each check finds what those before it have moved in memory.
  for place = 1, #counters do
    local hash = counters[place].hash
    read_conduct(counters[place], hash.key, hash.is_known, now, ARGV[1])
  end
  local refusing, waits = banned_checks(counters, now)
  local is_banned = refusing ~= ''
  if not is_banned then
    refusing, waits = refusing_checks(amounts, counters, false, true, now)
  end
  local shadows = shadow_refusals(amounts, counters, true)
  local looks, delay = flags % 2 == 1, refusing == '' and longest_delay(counters) or 0
  only_looks = only_looks and looks
  if not (is_banned or looks) then
    count_violations(counters, refusing, amounts, false, true, '', now)
  end
  for place = 1, #counters do
    local counter = counters[place]
    is_stale = is_stale or counter.later
    if counter.punishment and counter.punishment.moved then
      has_violations = true
      counter.hash.needed_until = math.max(counter.hash.needed_until, conduct_end(counter.punishment))
    end
    -- Looks together find each other too, in memory alone.
    if refusing == '' and (together or not looks) and not counter.unmoved then
      for line, weight in pairs(counter.weights) do
        counter.algorithm.charge(counter, weight * amounts[line])
      end
      counter.moved = true
      -- What refuses nothing may hold more than its capacity, and takes longer to forget it.
      local forgotten_at = counter.algorithm.resets_at(counter)
      counter.hash.needed_until = math.max(counter.hash.needed_until, needed_until, forgotten_at)
    end
  end
  is_refused = is_refused or refusing ~= ''
  local readings = pack_readings(counters, is_known)
  checks[number] = {
    counters = counters, refusing = refusing, waits = pack_units(waits), readings = readings, shadows = shadows, delay = delay,
    conduct = pack_conduct(counters),
  }
  key = key + string.byte(ARGV[4], number + 1)
end

-- check
local late = out_of_time(real, now, facts[3])
if late then
  return late
end
if is_stale then
  return { STALE_WINDOW, real, now, '' }
end
local writes = not together or not (is_refused or only_looks)
if not writes then
  reload_light(hashes, epoch, now)
end

-- write
if writes or has_violations then
  write_light(hashes, epoch, now, ARGV[3] == '')
end
local answer = { DONE, real, now, '', #checks }
for number = 1, #checks do
  local check, at = checks[number], #answer
  answer[at + 1], answer[at + 2] = check.refusing, check.waits
  answer[at + 3] = writes and check.readings or pack_readings(check.counters, is_known)
  answer[at + 4], answer[at + 5], answer[at + 6] = check.shadows, check.delay, check.conduct
end
return answer
