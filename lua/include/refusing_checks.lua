-- Which checks, from 0 and as bytes, do not allow the amounts: each is measured once, with the sum of all its lines.
local function refusing_checks(amounts, checks)
  local refusing = ''
  for number = 1, #checks do
    local check = checks[number]
    local need = 0
    for line = 1, #amounts do
      need = need + (check.weights[line] or 0) * amounts[line]
    end
    if need > 0 and (need > 9e15 or check.consumed + check.reserved + need > check.capacity) then
      refusing = refusing .. string.char(number - 1)
    end
  end
  return refusing
end
