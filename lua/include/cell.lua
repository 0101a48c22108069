-- What every algorithm can do with the figures of a counter in memory. `next_end` is never later than the end of any
-- hold. It is 0 where nothing is held or the end is not known; once it has passed, it says nothing about the holds that
-- are left.
local cell = {}

-- Whether a capacity is one: what refuses nothing has the largest amount in its place.
function cell.is_bounded(capacity)
  return capacity < 9e15
end

-- How many more units fit.
function cell.room(counter, capacity)
  return capacity - counter.consumed - counter.reserved
end

-- What amounts need, and the least of them that would be granted.
function cell.need(counter, amounts)
  local need, least = 0, nil
  for line = 1, #amounts do
    local weight = counter.weights[line]
    if weight then
      need = need + weight * amounts[line]
      least = math.min(least or weight, weight)
    end
  end
  return need, math.min(need, least or 0)
end

-- What an open reservation of these lines holds.
function cell.held(counter, held, consumed)
  local units = 0
  for line, weight in pairs(counter.weights) do
    units = units + weight * math.max(held[line] - consumed[line], 0)
  end
  return units
end

-- Holds units until `ends_at`.
function cell.hold(counter, units, ends_at)
  if units == 0 then
    return
  end
  if counter.reserved == 0 or ends_at < counter.next_end then
    counter.next_end = ends_at
  end
  counter.reserved = counter.reserved + units
end

-- Counts units that were not held.
function cell.charge(counter, units)
  counter.consumed = counter.consumed + units
end

-- Gives back units that were held.
function cell.give_back(counter, units)
  counter.reserved = counter.reserved - units
  if counter.reserved == 0 then
    counter.next_end = 0
  end
end

-- Counts units that were held.
function cell.settle(counter, units)
  cell.give_back(counter, units)
  counter.consumed = counter.consumed + units
end

-- Packs the 32 bytes with which every cell begins.
function cell.save(counter)
  return struct.pack('<i8i8i8i8', counter.mark, counter.consumed, counter.reserved, counter.next_end)
end
