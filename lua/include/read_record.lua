-- Reads a record's head and lines; nothing when there is no record or it is of another epoch. The table has room for
-- what read_body adds, because one that grows is copied.
local function read_record(raw, epoch)
  if not raw then
    return nil
  end
  local layout, state, count, flags, step, of_epoch, expires_at, born_at, latest_expiry, sequence, at =
    struct.unpack('<BBBBI4i8i8i8i8i8', raw)
  if layout < 1 or layout > 4 then
    error('record layout')
  end
  if of_epoch ~= epoch then
    return nil
  end
  local held, consumed = {}, {}
  for line = 1, count do
    held[line], consumed[line], at = struct.unpack('<i8i8', raw, at)
  end
  local uncharged = {}
  if flags % 16 >= 8 then
    for line = 1, count do
      uncharged[line], at = struct.unpack('<i8', raw, at)
    end
  end
  local start_after = 0
  if flags % 32 >= 16 then
    start_after, at = struct.unpack('<i8', raw, at)
  end
  local unmoved = 0
  if layout > 2 then
    unmoved, at = struct.unpack('<I4', raw, at)
  end
  return {
    layout = layout, state = state, count = count, late = flags % 2 == 1, degraded = flags % 8 >= 4, step = step, epoch = of_epoch,
    expires_at = expires_at, born_at = born_at, latest_expiry = latest_expiry, sequence = sequence,
    held = held, consumed = consumed, uncharged = uncharged, start_after = start_after, unmoved = unmoved, correction = flags - flags % 32, raw = raw, body_at = at,
    tenant = false, core_length = 0, lines = false, tail = false, named = 0, subjects = false, counters = false, keyed = false, hex = false,
  }
end
