-- include statuses
-- include window_wait
-- The refusal of a call of one line, by its counters as plain_load has them: which refuse and for how long, how all stand, and what would fit.
local function plain_refusal(refused)
  local list, count, real, now = refused.list, refused.count, refused.real, refused.now
  local refusing, waits, most = '', {}, refused.amount
  local readings, place, read = {}, 0, 0
  for number = 0, count - 1 do
    local capacity, window_end, need = list[place + 3], list[place + 5], list[place + 6]
    local consumed, reserved, next_end = list[place + 7], list[place + 8], list[place + 9]
    local room = capacity - consumed - reserved
    if need > 0 and need > room then
      refusing = refusing .. string.char(number)
      waits[#waits + 1] = window_wait({ capacity = capacity, consumed = consumed, next_end = next_end }, need, window_end, now)
      most = math.min(most, math.floor(room / (need / refused.amount)))
    end
    readings[read + 1], readings[read + 2], readings[read + 3] = consumed, reserved, room
    readings[read + 4], readings[read + 5], readings[read + 6] = window_end, next_end, 1
    place, read = place + 9, read + 6
  end
  return { REFUSED, real, now, '', struct.pack('<i8', math.max(most, 0)), struct.pack('<' .. string.rep('i8i8i8i8i8B', count), unpack(readings)),
    refusing, struct.pack('<' .. string.rep('i8', #waits), unpack(waits)) }
end
