-- include cell
-- sliding_counter: by a window that slides in steps. The cell's mark is the number of the newest slot; consumed and
-- reserved are the sums of all slots, one more than the window has. Its own numbers: the first work in it, then
-- `consumed  reserved` for each slot, at the slot's number modulo their count.
-- parameters  i8 length of a slot in ms  B slots
local sliding_counter = { is_restorable = false }

-- Reads a counter's parameters. Returns where they end.
function sliding_counter.read(counter, packed, at)
  counter.slot_ms, counter.slot_count, at = struct.unpack('<i8B', packed, at)
  return at
end

-- Reads the cell as it counts work of one instant, without the slots that have slid out. When the clock went back, new
-- work counts in the slot of its time, unless that is older than all slots.
function sliding_counter.load(counter, raw, counted_at, admits, now)
  local count = counter.slot_count
  local number, newest = math.floor(counted_at / counter.slot_ms), math.floor(now / counter.slot_ms)
  counter.began, counter.since, counter.now = counted_at, counted_at, now
  counter.place = 2 * (number % count)
  local mark, consumed, reserved, next_end, since
  if raw then
    mark, consumed, reserved, next_end, since = struct.unpack('<i8i8i8i8i8', raw)
  end
  if not raw or (admits and number <= mark - count) then
    counter.mark, counter.slots = newest, {}
    for place = 1, 2 * count do
      counter.slots[place] = 0
    end
    return
  end
  local slots = { struct.unpack('<' .. string.rep('i8', 2 * count), raw, 41) }
  newest = math.max(newest, mark)
  for gone = mark + 1, math.min(newest, mark + count) do
    local place = 2 * (gone % count)
    consumed, reserved = consumed - slots[place + 1], reserved - slots[place + 2]
    slots[place + 1], slots[place + 2] = 0, 0
  end
  counter.mark, counter.slots, counter.since = newest, slots, admits and math.min(since, counted_at) or since
  counter.consumed, counter.reserved, counter.next_end = consumed, reserved, reserved > 0 and next_end or 0
  counter.current = counted_at >= counter.since and number > newest - count
end

-- Whether it still counts the work for which it was read.
function sliding_counter.is_open(counter)
  return counter.current
end

-- When `units` have slid out, of what is consumed or of everything: at the latest when all of it has.
local function slid_out(counter, units, counts_holds)
  local number, count, slots = counter.mark - counter.slot_count, counter.slot_count, counter.slots
  while units > 0 and number < counter.mark do
    number = number + 1
    local place = 2 * (number % count)
    units = units - slots[place + 1] - (counts_holds and slots[place + 2] or 0)
  end
  return math.max((number + count) * counter.slot_ms, counter.now)
end

-- When the last unit has slid out.
function sliding_counter.resets_at(counter)
  return slid_out(counter, counter.consumed + counter.reserved, true)
end

-- How long until so many units may fit, in ms; -1 for never. Where holds leave no room, the end of the next one may
-- help before they slide out.
function sliding_counter.wait(counter, need, now)
  local capacity = counter.capacity
  if need > capacity then
    return -1
  end
  local without_holds = slid_out(counter, need - capacity + counter.consumed, false)
  local hold_ends_at = counter.next_end > now and counter.next_end or now + 1000
  local with_holds = slid_out(counter, need - cell.room(counter, capacity), true)
  return math.min(with_holds, math.max(without_holds, hold_ends_at)) - now
end

-- Holds units until `ends_at`.
function sliding_counter.hold(counter, units, ends_at)
  local slots, place = counter.slots, counter.place
  slots[place + 2] = slots[place + 2] + units
  cell.hold(counter, units, ends_at)
end

-- Counts units that were not held.
function sliding_counter.charge(counter, units)
  local slots, place = counter.slots, counter.place
  slots[place + 1] = slots[place + 1] + units
  cell.charge(counter, units)
end

-- Gives back units that were held, at most those of their slot.
function sliding_counter.give_back(counter, units)
  local slots, place = counter.slots, counter.place
  units = math.min(units, slots[place + 2])
  slots[place + 2] = slots[place + 2] - units
  cell.give_back(counter, units)
end

-- Counts units that were held.
function sliding_counter.settle(counter, units)
  sliding_counter.charge(counter, units)
  sliding_counter.give_back(counter, units)
end

-- Packs the cell.
function sliding_counter.save(counter)
  local count = 2 * counter.slot_count
  return struct.pack('<i8i8i8i8i8' .. string.rep('i8', count), counter.mark, counter.consumed, counter.reserved, counter.next_end, counter.since,
    unpack(counter.slots, 1, count))
end

sliding_counter.room = cell.room
sliding_counter.need, sliding_counter.held, sliding_counter.most = cell.need, cell.held, sliding_counter.room

return sliding_counter
