-- include algorithm_codes
-- include plain/sum
-- Reads a call's counters into one list, with nine places each: scope, field, capacity (below 0: the quota's), window's start and end, need,
-- and three for the cell. Returns the list, how many counters it has, what to ask of the tenant's hash, its length, and what to ask of the subjects'
-- hashes. Nothing where an algorithm is not the calendar.
local function plain_checks(packed, at, amounts)
  local unpack_from, byte = struct.unpack, string.byte
  local list = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  local wanted, asked_count, subjects, place = { 'HMGET', KEYS[4], 'h', 0, 0, 0, 0, 0 }, 3, nil, 0
  local count = byte(packed, at)
  at = at + 1
  for _ = 1, count do
    if byte(packed, at + 26) ~= CALENDAR then
      return nil
    end
    local scope, field, capacity, flags, began, window_end, need
    scope, field, capacity, flags, began, window_end, at = unpack_from('<Bc8xxxxxxxxi8Bxi8i8', packed, at)
    if flags % 32 == 1 then
      need, at = amounts[byte(packed, at) + 1], at + 1
    else
      need, at = plain_sum(packed, flags, at, amounts)
    end
    if scope == 0 then
      asked_count = asked_count + 1
      wanted[asked_count] = field
    else
      subjects = subjects or {}
      local asked = subjects[scope] or { 'HMGET', KEYS[4 + scope], 'h' }
      subjects[scope] = asked
      asked[#asked + 1] = field
    end
    if capacity < 0 then
      asked_count = asked_count + 1
      wanted[asked_count] = 'q' .. field
    end
    list[place + 1], list[place + 2], list[place + 3] = scope, field, capacity
    list[place + 4], list[place + 5], list[place + 6] = began, window_end, need
    place = place + 9
  end
  return list, count, wanted, asked_count, subjects
end
