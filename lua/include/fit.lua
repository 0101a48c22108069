-- What each line, in order, gets of what its counters have left after the lines before it; and whether any line gets
-- something. Shadow checks take nothing from it.
local function fit(amounts, checks, is_usage)
  local granted, taken, any = {}, {}, false
  for line, asked in ipairs(amounts) do
    local most = asked
    for number, check in ipairs(checks) do
      local weight = not check.shadow and check.weights[line]
      if weight then
        local room = check.algorithm.most(check, check.capacity, is_usage) - (taken[number] or 0)
        most = math.min(most, math.floor(room / weight))
      end
    end
    granted[line] = math.max(most, 0)
    any = any or granted[line] > 0
    for number, check in ipairs(checks) do
      if check.weights[line] then
        taken[number] = (taken[number] or 0) + check.weights[line] * granted[line]
      end
    end
  end
  return granted, any
end
