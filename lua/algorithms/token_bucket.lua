-- include cell
-- include drain
-- include drain_wait
-- token_bucket: by a bucket that refills steadily. The cell's mark is the last touch. Consumed is the level: what was
-- taken and is not refilled yet, holds included. Reserved are the open holds, which are shown and not added. Its own
-- numbers: the first work in it, the fraction of a unit that has drained, then up to eight times `at  low`: the lowest
-- level from each instant on.
-- parameters  i8 refill  i8 per so many ms
local token_bucket = { is_restorable = false }
local LOWS_MAX = 8

-- Reads a counter's parameters. Returns where they end.
function token_bucket.read(counter, packed, at)
  counter.refill, counter.per_ms, at = struct.unpack('<i8i8', packed, at)
  return at
end

-- The whole units of the level.
local function whole(counter)
  return counter.consumed - (counter.fraction > 0 and 1 or 0)
end

-- Remembers the current level as a low point. Two old low points become one that is stricter.
local function note_low(counter)
  local lows, low = counter.lows, whole(counter)
  local last = #lows
  while last > 0 and lows[last] >= low do
    lows[last], lows[last - 1] = nil, nil
    last = last - 2
  end
  lows[last + 1], lows[last + 2] = counter.mark, low
  if last == 2 * LOWS_MAX then
    lows[4] = math.min(lows[2], lows[4])
    table.remove(lows, 1)
    table.remove(lows, 1)
  end
end

-- Reads the cell as it counts work of one instant, drained up to now. Work from before the first work in the cell is
-- forgotten. When the clock went back, new work finds the cell as it was, unless the cell is further ahead than the
-- level takes to drain.
function token_bucket.load(counter, raw, counted_at, admits, now)
  counter.began, counter.mark, counter.counted_at = counted_at, counted_at, counted_at
  counter.since, counter.fraction, counter.lows = counted_at, 0, {}
  if raw then
    local mark, level, reserved, next_end, since, fraction = struct.unpack('<i8i8i8i8i8i8', raw)
    local refill, per_ms = counter.refill, counter.per_ms
    if not admits or now >= mark - drain_wait(level, fraction, refill, per_ms) then
      local count = (#raw - 48) / 8
      local lows = { struct.unpack('<' .. string.rep('i8', count), raw, 49) }
      lows[count + 1] = nil
      counter.lows, counter.reserved, counter.next_end = lows, reserved, next_end
      counter.mark, counter.since = math.max(mark, now), admits and math.min(since, counted_at) or since
      counter.consumed, counter.fraction = drain(level, fraction, refill, per_ms, counter.mark - mark)
      counter.current = counted_at >= counter.since
    end
  end
  note_low(counter)
end

-- Whether it counts the work for which it was read.
function token_bucket.is_open(counter)
  return counter.current
end

-- How many more units fit.
function token_bucket.room(counter, capacity)
  return capacity - counter.consumed
end

-- When it is full again.
function token_bucket.resets_at(counter)
  return counter.mark + drain_wait(counter.consumed, counter.fraction, counter.refill, counter.per_ms)
end

-- How long until so many units fit, in ms; -1 for never.
function token_bucket.wait(counter, need, now)
  if need > counter.capacity then
    return -1
  end
  local lacking = need - token_bucket.room(counter, counter.capacity)
  return counter.mark - now + drain_wait(lacking, counter.fraction, counter.refill, counter.per_ms)
end

-- Holds units until `ends_at`.
function token_bucket.hold(counter, units, ends_at)
  counter.consumed = counter.consumed + units
  cell.hold(counter, units, ends_at)
end

-- Counts units that were held.
function token_bucket.settle(counter, units)
  cell.give_back(counter, units)
end

-- Gives back units that were held, as if only what was consumed had been taken: units that were refilled meanwhile in
-- any case do not come back twice.
function token_bucket.give_back(counter, units)
  cell.give_back(counter, units)
  local lows, returned = counter.lows, math.min(units, whole(counter))
  for place = 1, #lows, 2 do
    if lows[place] > counter.counted_at then
      returned = math.min(returned, lows[place + 1])
    end
  end
  counter.consumed = counter.consumed - returned
  for place = 1, #lows, 2 do
    if lows[place] > counter.counted_at then
      lows[place + 1] = lows[place + 1] - returned
    end
  end
end

-- Packs the cell.
function token_bucket.save(counter)
  local lows = counter.lows
  return struct.pack('<i8i8i8i8i8i8' .. string.rep('i8', #lows), counter.mark, counter.consumed, counter.reserved, counter.next_end,
    counter.since, counter.fraction, unpack(lows))
end

token_bucket.charge = cell.charge
token_bucket.need, token_bucket.held, token_bucket.most = cell.need, cell.held, token_bucket.room

return token_bucket
