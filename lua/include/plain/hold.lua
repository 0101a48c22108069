-- Holds what a call needs of its counters until then, or counts it as consumed, and writes their cells. Returns how they stand, packed.
local function plain_hold(list, count, subjects, expires_at, is_usage)
  local pack, place, read, written = struct.pack, 0, 0, 2
  local writes, readings = { 'HSET', KEYS[4], 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  for _ = 1, count do
    local scope, need, consumed, reserved, next_end = list[place + 1], list[place + 6], list[place + 7], list[place + 8], list[place + 9]
    if is_usage then
      consumed = consumed + need
    elseif need > 0 then
      if reserved == 0 or expires_at < next_end then
        next_end = expires_at
      end
      reserved = reserved + need
    end
    local cell = pack('<i8i8i8i8', list[place + 4], consumed, reserved, next_end)
    if scope == 0 then
      writes[written + 1], writes[written + 2] = list[place + 2], cell
      written = written + 2
    else
      local of_subject = subjects[scope].writes
      local at = #of_subject
      of_subject[at + 1], of_subject[at + 2] = list[place + 2], cell
    end
    readings[read + 1], readings[read + 2], readings[read + 3] = consumed, reserved, list[place + 3] - consumed - reserved
    readings[read + 4], readings[read + 5], readings[read + 6] = list[place + 5], next_end, 1
    place, read = place + 9, read + 6
  end
  if written > 2 then
    redis.call(unpack(writes, 1, written))
  end
  if subjects then
    for _, told in pairs(subjects) do
      redis.call(unpack(told.writes))
    end
  end
  return pack('<' .. string.rep('i8i8i8i8i8B', count), unpack(readings, 1, read))
end
