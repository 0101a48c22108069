-- Which checks, from 0 and as bytes, do not allow the amounts: each is checked once, with the sum of all its lines, and
-- a shadow check never refuses. And the shortest wait for each: for all of the amounts, or for any part if a part is
-- enough.
local function refusing_checks(amounts, checks, any_part, is_usage, now)
  local refusing, waits = '', {}
  for number = 1, #checks do
    local check = checks[number]
    local need, least = check.algorithm.need(check, amounts, is_usage)
    if need > 0 and not check.shadow and (need > 9e15 or need > check.algorithm.room(check, check.capacity)) then
      refusing = refusing .. string.char(number - 1)
      waits[#waits + 1] = check.algorithm.wait(check, any_part and least or need, now)
    end
  end
  return refusing, waits
end
