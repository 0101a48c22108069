-- Which checks, from 0 and as bytes, do not allow the amounts: each is measured once, with the sum of all its lines. And how long each of
-- them has to be waited for, at least: for all of it, or for any part where that would do.
local function refusing_checks(amounts, checks, any_part, now)
  local refusing, waits = '', {}
  for number = 1, #checks do
    local check = checks[number]
    local need, least = 0, nil
    for line = 1, #amounts do
      local weight = check.weights[line]
      if weight then
        need = need + weight * amounts[line]
        least = math.min(least or weight, weight)
      end
    end
    if need > 0 and (need > 9e15 or need > check.algorithm.room(check, check.capacity)) then
      refusing = refusing .. string.char(number - 1)
      waits[#waits + 1] = check.algorithm.wait(check, any_part and math.min(need, least) or need, now)
    end
  end
  return refusing, waits
end
