-- Marks the shadow checks that would have refused the amounts as unmoved. Returns them, from 0 and as bytes, and as a
-- number with a bit for each, from the lowest on.
local function shadow_refusals(amounts, checks, is_usage)
  local refusing, mask = '', 0
  for number = 1, #checks do
    local check = checks[number]
    if check.shadow then
      local need = check.algorithm.need(check, amounts, is_usage)
      check.unmoved = need > 0 and need > check.algorithm.room(check, check.capacity)
      if check.unmoved then
        refusing, mask = refusing .. string.char(number - 1), mask + 2 ^ (number - 1)
      end
    end
  end
  return refusing, mask
end
