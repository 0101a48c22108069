#!lua flags=allow-oom
-- give_back: gives back what was taken of global limits: all of it where no call that went by it was admitted, or what
--            is above these amounts. A counter whose window is over has forgotten it.
-- KEYS     1 meta  2 counters of global limits  3 what the reservation took, where that is remembered
-- ARGV     1 epoch  2 not_after  3 now ('' = Redis's)  4 '' for a call that was not admitted, else the amounts that
--          stay, `i8` each  5.. where nothing is remembered, takings (packed in gate/take.rs)
-- returns  { status, real time, time, '' }
--          DONE    KEPT: nothing is remembered, or another call goes by it    ALARM: epoch found
-- event    none
-- include prelude
-- include out_of_time
-- include read_checks
-- include read_light
-- include read_taking
-- include pack_taking
-- include pack_units
-- include write_light

local real, now, facts, alarm = prelude(ARGV[3])
if alarm then
  return alarm
end

-- read
local epoch, hashes, takings, before = tonumber(ARGV[1]), {}, {}, nil
for number = 5, #ARGV do
  takings[number - 4] = ARGV[number]
end
if KEYS[3] then
  before = read_taking(redis.call('GET', KEYS[3]), epoch, now)
  takings[1] = before and string.sub(before.rest, 17)
end
local header = redis.call('HGET', KEYS[2], 'h')
local hash = { key = KEYS[2], met = {}, header = header, is_known = false, ends_at = 0, needed_until = 0 }
if header then
  local of_epoch
  of_epoch, hash.ends_at = struct.unpack('<i8i8', header)
  hash.is_known = of_epoch == epoch
end
hashes[1] = hash
-- Of each counter and instant at once: a counter is loaded for the instant at which it counted.
local writes = {}
local function returned(taking)
  local taken_at, unmoved, line_count, at = struct.unpack('<i8I4B', taking)
  local stays = { struct.unpack('<' .. string.rep('i8', ARGV[4] == '' and 0 or line_count), ARGV[4]) }
  for number, counter in ipairs(read_checks(taking, at + 8 * line_count)) do
    local units = 0
    for line, weight in pairs(counter.weights) do
      local granted = struct.unpack('<i8', taking, at + 8 * (line - 1))
      units = units + weight * math.max(granted - (ARGV[4] == '' and 0 or stays[line]), 0)
    end
    local was_moved = math.floor(unmoved / 2 ^ (number - 1)) % 2 == 0
    if was_moved and units > 0 then
      local raw = writes[counter.field] or redis.call('HGET', KEYS[2], counter.field)
      read_light(counter, false, epoch, now)
      counter.algorithm.load(counter, raw, taken_at, false, now)
      if raw and counter.current then
        counter.algorithm.charge(counter, -math.min(units, counter.consumed))
        counter.moved = true
        hash.met[counter.field], writes[counter.field] = counter, counter.algorithm.save(counter)
      end
    end
  end
end

-- check
local late = out_of_time(real, now, facts[3])
if late then
  return late
end
if before and ARGV[4] == '' and before.claims > 1 then
  redis.call('SET', KEYS[3], pack_taking(epoch, before, before.claims - 1), 'KEEPTTL')
  return { KEPT, real, now, '' }
end
-- Another request under the same key, with other lines, has taken that.
if KEYS[3] and (not before or (ARGV[4] ~= '' and #ARGV[4] ~= 8 * #before.granted)) then
  return { KEPT, real, now, '' }
end
if hash.is_known then
  for number = 1, #takings do
    returned(takings[number])
  end
end

-- write
write_light(hashes, epoch, now, ARGV[3] == '')
if before and ARGV[4] == '' then
  redis.call('DEL', KEYS[3])
elseif before then
  local granted = {}
  for line = 1, #before.granted do
    granted[line] = math.min(before.granted[line], (struct.unpack('<i8', ARGV[4], 8 * line - 7)))
  end
  before.rest = string.sub(before.rest, 1, 29) .. pack_units(granted) .. string.sub(before.rest, 30 + 8 * #granted)
  redis.call('SET', KEYS[3], pack_taking(epoch, before, before.claims), 'KEEPTTL')
end
return { DONE, real, now, '' }
