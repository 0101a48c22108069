-- Which checks, from 0 and as bytes, do not allow the amounts: each is measured once, with the sum of all its lines.
local function refusing_checks(amounts, checks)
  local refusing = {}
  for number, check in ipairs(checks) do
    local need = 0
    for line, weight in pairs(check.weights) do
      need = need + weight * amounts[line]
    end
    if need > 0 and (need > 9e15 or check.consumed + check.reserved + need > check.capacity) then
      refusing[#refusing + 1] = string.char(number - 1)
    end
  end
  return table.concat(refusing)
end
