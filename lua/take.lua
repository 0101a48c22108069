#!lua
-- take: counts amounts under global limits, whose counters all tenants share, before the tenant's own partition
--       decides: all of it or nothing, or as much as fits. What a reservation took is remembered, so that it takes
--       nothing twice.
-- KEYS     1 meta  2 counters of global limits  3 what the reservation took, if that is remembered
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 what is asked for (packed in gate/take.rs)
-- returns  { status, real time, time, '', ... }
--          DONE: granted, readings, which shadow limits would have refused, whether it is remembered
--          REPLAYED: granted to this reservation before, readings
--          REFUSED: granted by a best effort, readings, refusing, waits in ms, shadows
--          TOO_LARGE: a counter would be beyond the largest amount    STALE_WINDOW    ALARM: epoch found
-- event    none
-- include prelude
-- include out_of_time
-- include integer
-- include read_checks
-- include load_light
-- include is_known
-- include pack_readings
-- include pack_units
-- include refusing_checks
-- include shadow_refusals
-- include fit
-- include read_taking
-- include pack_taking
-- include write_light

-- read
local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end
local epoch, hashes, asked = tonumber(ARGV[1]), {}, ARGV[4]
local mode, line_count, valid_from, valid_until, needed_until, remembered_for, at = struct.unpack('<BBi8i8i8i8', asked)
local fingerprint, amounts = string.sub(asked, at, at + 15), { struct.unpack('<' .. string.rep('i8', line_count), asked, at + 16) }
amounts[line_count + 1] = nil
local counters_at = at + 16 + 8 * line_count
local counters = read_checks(asked, counters_at)
load_light(hashes, KEYS, 2, counters, epoch, now)
local before = KEYS[3] and read_taking(redis.call('GET', KEYS[3]), epoch, now)
local best_effort, only_counts = mode == 1, mode == 2
local refusing, waits = refusing_checks(amounts, counters, best_effort, true, now)
local is_stale = now < valid_from or now >= valid_until
for number = 1, #counters do
  is_stale = is_stale or counters[number].later
end

-- check
local late = out_of_time(real, now, facts[3])
if late then
  return late
end
if before and before.fingerprint == fingerprint and now < before.whole_until then
  -- One more call goes by what this reservation took: it is given back once none of them was admitted.
  redis.call('SET', KEYS[3], pack_taking(epoch, before, before.claims + 1), 'KEEPTTL')
  return { REPLAYED, real, now, '', pack_units(before.granted), pack_readings(counters, is_known) }
end
if is_stale then
  return { STALE_WINDOW, real, now, '' }
end
local granted, any = amounts, true
if best_effort then
  granted, any = fit(amounts, counters, true)
end
local shadows, unmoved = shadow_refusals(granted, counters, true)
if not only_counts and (not any or (refusing ~= '' and not best_effort)) then
  return { REFUSED, real, now, '', pack_units(granted), pack_readings(counters, is_known), refusing, pack_units(waits), shadows }
end
for number = 1, #counters do
  local counter, need = counters[number], 0
  for line, weight in pairs(counter.weights) do
    need = need + weight * granted[line]
  end
  if not counter.unmoved and counter.consumed + need > 9e15 then
    return { TOO_LARGE, real, now, '' }
  end
end

-- write
local until_ms, whole_until = now, now + remembered_for
for number = 1, #counters do
  local counter = counters[number]
  if not counter.unmoved then
    for line, weight in pairs(counter.weights) do
      counter.algorithm.charge(counter, weight * granted[line])
    end
    counter.moved = true
    local forgotten_at = counter.algorithm.resets_at(counter)
    counter.hash.needed_until = math.max(counter.hash.needed_until, needed_until, forgotten_at)
    until_ms, whole_until = math.max(until_ms, forgotten_at), math.min(whole_until, forgotten_at)
  end
end
until_ms = math.min(until_ms, now + remembered_for)
-- What an earlier call took stays remembered: of another request under the same key, or partly forgotten by now.
local is_remembered = KEYS[3] and not before and until_ms > now
write_light(hashes, epoch, now, ARGV[3] == '')
if is_remembered then
  local rest = fingerprint .. struct.pack('<i8I4B', now, unmoved, line_count) .. pack_units(granted) .. string.sub(asked, counters_at)
  local taking = pack_taking(epoch, { until_ms = until_ms, whole_until = whole_until, rest = rest }, 1)
  if ARGV[3] == '' then
    redis.call('SET', KEYS[3], taking, 'PXAT', integer(until_ms))
  else
    redis.call('SET', KEYS[3], taking)
  end
end
return { DONE, real, now, '', pack_units(granted), pack_readings(counters, is_known), shadows, is_remembered and 1 or 0 }
