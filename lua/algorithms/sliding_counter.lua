-- include cell
-- sliding_counter: by a window that slides in steps. The cell's mark is the number of the newest slot; consumed and
-- reserved are the sums of all slots, one more than the window has. Its own numbers: the first work in it, then
-- `consumed  reserved` for each slot, at the slot's number modulo their count.
-- parameters  i8 length of a slot in ms  B slots
local sliding_counter = { is_restorable = false }
-- The bytes of a cell before its slots, and those of a slot.
local FRONT, SLOT = 40, 16

-- Reads a counter's parameters. Returns where they end.
function sliding_counter.read(counter, packed, at)
  counter.slot_ms, counter.slot_count, at = struct.unpack('<i8B', packed, at)
  return at
end

-- What a slot of the cell counts, by where it begins.
local function slot_at(cells, place)
  local consumed, reserved = struct.unpack('<i8i8', cells, place)
  return consumed, reserved
end

-- The cell with a slot emptied, by where that begins.
local function without(cells, place)
  return string.sub(cells, 1, place - 1) .. string.rep('\0', SLOT) .. string.sub(cells, place + SLOT)
end

-- Reads the cell as it counts work of one instant, without the slots that have slid out. Of all slots, only that of the
-- work becomes numbers. When the clock went back, new work counts in the slot of its time, unless that is older than
-- all slots.
function sliding_counter.load(counter, raw, counted_at, admits, now)
  local count = counter.slot_count
  local number, newest = math.floor(counted_at / counter.slot_ms), math.floor(now / counter.slot_ms)
  counter.began, counter.since, counter.now = counted_at, counted_at, now
  counter.place = FRONT + 1 + SLOT * (number % count)
  local mark, consumed, reserved, next_end, since
  if raw then
    mark, consumed, reserved, next_end, since = struct.unpack('<i8i8i8i8i8', raw)
  end
  if not raw or (admits and number <= mark - count) then
    counter.mark, counter.cell, counter.slot_consumed, counter.slot_reserved = newest, string.rep('\0', FRONT + SLOT * count), 0, 0
    return
  end
  newest = math.max(newest, mark)
  for gone = mark + 1, math.min(newest, mark + count) do
    local place = FRONT + 1 + SLOT * (gone % count)
    local gone_consumed, gone_reserved = slot_at(raw, place)
    consumed, reserved = consumed - gone_consumed, reserved - gone_reserved
    raw = without(raw, place)
  end
  counter.mark, counter.cell, counter.since = newest, raw, admits and math.min(since, counted_at) or since
  counter.slot_consumed, counter.slot_reserved = slot_at(raw, counter.place)
  counter.consumed, counter.reserved, counter.next_end = consumed, reserved, reserved > 0 and next_end or 0
  counter.current = counted_at >= counter.since and number > newest - count
end

-- Whether it still counts the work for which it was read.
function sliding_counter.is_open(counter)
  return counter.current
end

-- What the slot of a number counts.
local function slot_of(counter, number)
  local place = FRONT + 1 + SLOT * (number % counter.slot_count)
  if place == counter.place then
    return counter.slot_consumed, counter.slot_reserved
  end
  return slot_at(counter.cell, place)
end

-- When the slot of a number has slid out.
local function end_of(counter, number)
  return math.max((number + counter.slot_count) * counter.slot_ms, counter.now)
end

-- When `units` have slid out, of what is consumed or of everything: at the latest when all of it has.
local function slid_out(counter, units, counts_holds)
  local number = counter.mark - counter.slot_count
  while units > 0 and number < counter.mark do
    number = number + 1
    local consumed, reserved = slot_of(counter, number)
    units = units - consumed - (counts_holds and reserved or 0)
  end
  return end_of(counter, number)
end

-- When the last unit has slid out.
function sliding_counter.resets_at(counter)
  local number, units = counter.mark + 1, 0
  while units == 0 and number > counter.mark - counter.slot_count do
    number = number - 1
    local consumed, reserved = slot_of(counter, number)
    units = consumed + reserved
  end
  return end_of(counter, number)
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
  counter.slot_reserved = counter.slot_reserved + units
  cell.hold(counter, units, ends_at)
end

-- Counts units that were not held.
function sliding_counter.charge(counter, units)
  counter.slot_consumed = counter.slot_consumed + units
  cell.charge(counter, units)
end

-- Gives back units that were held, at most those of their slot.
function sliding_counter.give_back(counter, units)
  units = math.min(units, counter.slot_reserved)
  counter.slot_reserved = counter.slot_reserved - units
  cell.give_back(counter, units)
end

-- Counts units that were held.
function sliding_counter.settle(counter, units)
  sliding_counter.charge(counter, units)
  sliding_counter.give_back(counter, units)
end

-- Packs the cell: the bytes of the other slots are those that were read.
function sliding_counter.save(counter)
  local place = counter.place
  return struct.pack('<i8i8i8i8i8c0i8i8c0', counter.mark, counter.consumed, counter.reserved, counter.next_end, counter.since,
    string.sub(counter.cell, FRONT + 1, place - 1), counter.slot_consumed, counter.slot_reserved, string.sub(counter.cell, place + SLOT))
end

sliding_counter.room = cell.room
sliding_counter.need, sliding_counter.held, sliding_counter.most = cell.need, cell.held, sliding_counter.room

return sliding_counter
