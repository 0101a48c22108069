-- include cell
-- interval: by the time since the last call: one call in each length of time, however much it asks for. The cell's mark
-- is the last admitted call; consumed is 1 until the length has passed. Nothing is given back.
-- parameters  i8 length in ms
local interval = { is_restorable = false }

-- Reads a counter's parameters. Returns where they end.
function interval.read(counter, packed, at)
  counter.length, at = struct.unpack('<i8', packed, at)
  return at
end

-- Reads the cell as it counts new work. No other work moves it. A clock that went back further than the length tells
-- nothing of the last call.
function interval.load(counter, raw, counted_at, admits, now)
  counter.began, counter.now, counter.mark, counter.counted_at = counted_at, now, now, counted_at
  if raw and admits then
    local mark, consumed = struct.unpack('<i8i8', raw)
    if math.abs(now - mark) < counter.length then
      counter.mark, counter.consumed, counter.current = mark, consumed, true
    end
  end
end

-- Whether it cuts a consume: it does not, because what a call uses counts nothing.
function interval.is_open()
  return false
end

-- Whether another call fits.
function interval.room(counter, capacity)
  return counter.consumed > 0 and cell.is_bounded(capacity) and 0 or capacity
end

-- When the next call fits.
function interval.resets_at(counter)
  return counter.consumed > 0 and counter.mark + counter.length or counter.now
end

-- How long until the next call fits, in ms; -1 for never.
function interval.wait(counter, need)
  return need > counter.capacity and -1 or interval.resets_at(counter) - counter.now
end

-- What amounts need, and the least of them that would be granted: one call.
function interval.need(counter, amounts)
  local need = math.min(cell.need(counter, amounts), 1)
  return need, need
end

-- The most units that a call may be granted.
function interval.most(counter, capacity)
  return interval.room(counter, capacity) > 0 and 9e15 or 0
end

-- What an open reservation of these lines holds: it is one call.
function interval.held(counter, held, consumed)
  return math.min(cell.held(counter, held, consumed), 1)
end

-- Counts a call.
function interval.charge(counter, units)
  if units > 0 then
    counter.mark, counter.consumed, counter.reserved, counter.next_end = counter.counted_at, 1, 0, 0
  end
end

-- What became of a call changes nothing.
function interval.settle()
end

interval.hold, interval.save, interval.give_back = interval.charge, cell.save, interval.settle

return interval
