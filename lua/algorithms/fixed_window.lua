-- include cell
-- include fixed_end
-- include window_wait
-- fixed_window: by windows of one length. The cell's mark is the first use in its window. The window begins there or,
-- if aligned, at the multiple of the length before it. So work since the mark is in the cell, even if memory was lost
-- within the window.
-- parameters  i8 length in ms  B aligned
local fixed_window = { is_restorable = false }

-- Reads a counter's parameters. Returns where they end.
function fixed_window.read(counter, packed, at)
  counter.length, counter.aligned, at = struct.unpack('<i8B', packed, at)
  return at
end

-- When the window ends whose first use is at `mark`.
local function end_of(counter, mark)
  return fixed_end(mark, counter.length, counter.aligned)
end

-- Reads the cell as it counts work of one instant. A window that is over reads as empty. When the clock went back, new
-- work counts in the stored window, unless that lies more than its length ahead.
function fixed_window.load(counter, raw, counted_at, admits)
  counter.began, counter.mark = counted_at, counted_at
  if not raw then
    return
  end
  local mark, consumed, reserved, next_end = struct.unpack('<i8i8i8i8', raw)
  local has_begun = counted_at >= mark or (admits and counted_at >= mark - counter.length)
  if has_begun and counted_at < end_of(counter, mark) then
    counter.current, counter.mark = true, mark
    counter.consumed, counter.reserved, counter.next_end = consumed, reserved, next_end
  end
end

-- Whether its window goes on.
function fixed_window.is_open(counter, now)
  return counter.current and now < end_of(counter, counter.mark)
end

-- When what it counts is forgotten.
function fixed_window.resets_at(counter)
  return end_of(counter, counter.mark)
end

-- How long until so many units may fit, in ms; -1 for never.
function fixed_window.wait(counter, need, now)
  return window_wait(counter, need, end_of(counter, counter.mark), now)
end

fixed_window.room, fixed_window.save = cell.room, cell.save
fixed_window.hold, fixed_window.charge, fixed_window.settle, fixed_window.give_back = cell.hold, cell.charge, cell.settle, cell.give_back
fixed_window.need, fixed_window.held, fixed_window.most = cell.need, cell.held, fixed_window.room

return fixed_window
