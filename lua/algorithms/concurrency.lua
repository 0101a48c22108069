-- include cell
-- concurrency: by what runs at once. It counts only what open reservations hold, each until it ends: by its units, or
-- as one.
-- parameters  i8 what each reservation counts as, in units (0: the units that it holds)
local concurrency = { is_restorable = false, holds_survive = true, is_timeless = true }

-- Reads a counter's parameters. Returns where they end.
function concurrency.read(counter, packed, at)
  counter.each, at = struct.unpack('<i8', packed, at)
  return at
end

-- Reads the cell, which counts the holds since its mark: those before it were lost with the cell that had them, and
-- give nothing back.
function concurrency.load(counter, raw, counted_at, admits, now)
  counter.began, counter.now, counter.mark = 0, now, counted_at
  if raw then
    local mark, _, reserved, next_end = struct.unpack('<i8i8i8i8', raw)
    counter.mark = admits and math.min(mark, counted_at) or mark
    counter.current, counter.reserved, counter.next_end = counted_at >= counter.mark, reserved, next_end
  end
end

-- Whether it cuts a consume: it does not, because consumed units do not count.
function concurrency.is_open()
  return false
end

-- When the next hold ends; now where nothing is held, or no end is known.
function concurrency.resets_at(counter)
  return math.max(counter.next_end, counter.now)
end

-- How long until so many units may fit, in ms; -1 for never. The end of the next hold is the earliest that can help.
function concurrency.wait(counter, need, now)
  if need > counter.capacity then
    return -1
  end
  return counter.next_end > now and counter.next_end - now or 1000
end

-- What amounts need, and the smallest part of them that would be granted. A usage never runs, so it needs nothing.
function concurrency.need(counter, amounts, is_usage)
  local need, least = cell.need(counter, amounts)
  if is_usage then
    return 0, 0
  elseif need > 0 and counter.each > 0 then
    return counter.each, counter.each
  end
  return need, least
end

-- The most units that a call may be granted.
function concurrency.most(counter, capacity, is_usage)
  local room = cell.room(counter, capacity)
  if is_usage or (counter.each > 0 and room >= counter.each) then
    return 9e15
  end
  return counter.each > 0 and 0 or room
end

-- What an open reservation of these lines holds: all of it until it ends.
function concurrency.held(counter, held)
  local units = 0
  for line, weight in pairs(counter.weights) do
    units = units + weight * held[line]
  end
  return units > 0 and counter.each > 0 and counter.each or units
end

-- Consumed units do not count.
function concurrency.charge()
end

concurrency.room, concurrency.save, concurrency.hold = cell.room, cell.save, cell.hold
concurrency.settle, concurrency.give_back = cell.give_back, cell.give_back

return concurrency
