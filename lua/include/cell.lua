-- What every algorithm may do with the figures of a counter in memory. `next_end` is never later than the end of any hold: 0 where
-- nothing is held, or where that is not known; one that has passed says nothing of the holds that are left.
local cell = {}

-- How many more units fit.
function cell.room(counter, capacity)
  return capacity - counter.consumed - counter.reserved
end

-- Holds units until then.
function cell.hold(counter, units, ends_at)
  if units == 0 then
    return
  end
  if counter.reserved == 0 or ends_at < counter.next_end then
    counter.next_end = ends_at
  end
  counter.reserved = counter.reserved + units
end

-- Counts units that nothing held.
function cell.charge(counter, units)
  counter.consumed = counter.consumed + units
end

-- Returns units that were held.
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
