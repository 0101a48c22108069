-- include cell
-- include window_wait
-- calendar: by windows of the tenant's calendar. The cell's mark is its window's start.
-- parameters  i8 window's start  i8 window's end
local calendar = { is_restorable = true, holds_survive = true }

-- Reads a counter's parameters. Returns where they end.
function calendar.read(counter, packed, at)
  counter.began, counter.window_end, at = struct.unpack('<i8i8', packed, at)
  return at
end

-- Reads the cell as it counts in the counter's window.
function calendar.load(counter, raw)
  counter.mark = counter.began
  if not raw then
    return
  end
  local mark, consumed, reserved, next_end = struct.unpack('<i8i8i8i8', raw)
  if mark == counter.began then
    counter.current = true
    counter.consumed, counter.reserved, counter.next_end = consumed, reserved, next_end
  else
    counter.later = mark > counter.began
  end
end

-- Whether its window goes on.
function calendar.is_open(counter, now)
  return now < counter.window_end and not counter.later
end

-- When what it counts is forgotten.
function calendar.resets_at(counter)
  return counter.window_end
end

-- How long until so many units may fit, in ms; -1 for never.
function calendar.wait(counter, need, now)
  return window_wait(counter, need, counter.window_end, now)
end

calendar.room, calendar.save = cell.room, cell.save
calendar.hold, calendar.charge, calendar.settle, calendar.give_back = cell.hold, cell.charge, cell.settle, cell.give_back
calendar.need, calendar.held, calendar.most = cell.need, cell.held, calendar.room

return calendar
