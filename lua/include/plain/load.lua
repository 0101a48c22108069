-- include quota_capacity
-- Reads the cells of a call's counters, as plain_checks has them, into the last three places of each: consumed, reserved, next end of a hold.
-- Returns whether they are known and current; and whether there is room for all.
local function plain_load(list, count, values, subjects, now)
  local unpack_from = struct.unpack
  local at, place, fits = 1, 0, true
  for _ = 1, count do
    local scope, raw = list[place + 1], nil
    if scope == 0 then
      at = at + 1
      raw = values[at]
    else
      local told = subjects[scope]
      told.at = told.at + 1
      raw = told[told.at]
    end
    if not raw then
      return false
    end
    local mark, consumed, reserved, next_end = unpack_from('<i8i8i8i8', raw)
    local capacity, began, need = list[place + 3], list[place + 4], list[place + 6]
    if mark > began then
      return false
    elseif mark < began then
      consumed, reserved, next_end = 0, 0, 0
    end
    if capacity < 0 then
      at = at + 1
      capacity = quota_capacity(values[at], now)
      if not capacity then
        return false
      end
      list[place + 3] = capacity
    end
    if need > 9e15 then
      return false
    end
    fits = fits and (need == 0 or need <= capacity - consumed - reserved)
    list[place + 7], list[place + 8], list[place + 9] = consumed, reserved, next_end
    place = place + 9
  end
  return true, fits
end
