-- A sliding counter's cell with other first 32 bytes, and with more consumed and held in the slot that begins at `at`.
-- Nothing where the slot holds less than is given back.
local function plain_slot(front, cell, at, consumed, held)
  local slot_consumed, slot_held = struct.unpack('<i8i8', cell, at)
  if slot_held + held < 0 then
    return nil
  end
  return struct.pack('<c0c0i8i8c0', front, string.sub(cell, 33, at - 1), slot_consumed + consumed, slot_held + held, string.sub(cell, at + 16))
end
