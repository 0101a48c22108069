-- include unknown_room
-- include quota_capacity
-- Settles a record's counters, as plain_places has them, by the cells that were read: what of the tenant's hash is to be written, its length, and how all
-- counters stand, packed; what of the subjects' hashes is to be written stands with these. Nothing where a cell is missing or out of bounds.
local function plain_settle(list, count, state, values, subjects, now)
  local unpack_from, pack, at, place, read, written = struct.unpack, struct.pack, 1, 0, 0, 2
  local writes, readings = { 'HSET', state, 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  for _ = 1, count do
    local told, cell, capacity = list[place + 1] > 0 and subjects[list[place + 1]], nil, nil
    if told then
      told.at = told.at + 1
      cell = told[told.at]
    else
      cell, capacity = values[at + 1], values[at + 2]
      at = at + 2
    end
    if not cell then
      return nil
    end
    local began = list[place + 3]
    local mark, consumed, reserved, next_end = unpack_from('<i8i8i8i8', cell)
    local is_current = mark == began
    if is_current then
      consumed, reserved = consumed + list[place + 5], reserved - list[place + 4]
      if reserved < 0 or consumed > 9e15 then
        return nil
      end
      next_end = reserved == 0 and 0 or next_end
      cell = pack('<i8i8i8i8', began, consumed, reserved, next_end)
      if told then
        local of_subject = told.writes
        local last = #of_subject
        of_subject[last + 1], of_subject[last + 2] = list[place + 2], cell
      else
        writes[written + 1], writes[written + 2] = list[place + 2], cell
        written = written + 2
      end
    else
      consumed, reserved, next_end = 0, 0, 0
    end
    capacity = capacity and quota_capacity(capacity, now)
    readings[read + 1], readings[read + 2] = consumed, reserved
    readings[read + 3] = capacity and capacity - consumed - reserved or UNKNOWN_ROOM
    readings[read + 4], readings[read + 5], readings[read + 6] = 0, next_end, is_current and 1 or 0
    place, read = place + 5, read + 6
  end
  return writes, written, pack('<' .. string.rep('i8i8i8i8i8B', count), unpack(readings, 1, read))
end
