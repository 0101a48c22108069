-- include cell
-- include window_wait
-- fixed_window: by windows of one length. The cell's mark is its window's start: the first use after the window before, or a multiple
-- of the length since 1970.
-- parameters  i8 length in ms  B aligned
local fixed_window = { is_restorable = false }

-- Reads a counter's parameters. Returns where they end.
function fixed_window.read(counter, packed, at)
  counter.length, counter.aligned, at = struct.unpack('<i8B', packed, at)
  return at
end

-- Reads the cell as it counts work of one instant. A window that is over reads as empty. Where the clock went back, work of now is counted
-- in the window that is there.
function fixed_window.load(counter, raw, counted_at, now)
  counter.began = counted_at
  counter.mark = counter.aligned == 1 and counted_at - counted_at % counter.length or counted_at
  if not raw then
    return
  end
  local mark, consumed, reserved, next_end = struct.unpack('<i8i8i8i8', raw)
  if counted_at >= mark + counter.length or (counted_at < mark and counted_at ~= now) then
    return
  end
  counter.current, counter.mark = true, mark
  counter.consumed, counter.reserved, counter.next_end = consumed, reserved, next_end
end

-- Whether its window goes on.
function fixed_window.is_open(counter)
  return counter.current
end

-- How many more units fit.
function fixed_window.room(counter, capacity)
  return capacity - counter.consumed - counter.reserved
end

-- When what it counts is forgotten.
function fixed_window.resets_at(counter)
  return counter.mark + counter.length
end

-- How long until so many units may fit, in ms; -1 for never.
function fixed_window.wait(counter, need, now)
  return window_wait(counter, need, counter.mark + counter.length, now)
end

fixed_window.hold, fixed_window.charge, fixed_window.settle, fixed_window.give_back = cell.hold, cell.charge, cell.settle, cell.give_back

-- Packs the cell.
function fixed_window.save(counter)
  return struct.pack('<i8i8i8i8', counter.mark, counter.consumed, counter.reserved, counter.next_end)
end

return fixed_window
