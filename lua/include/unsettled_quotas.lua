-- Of the checks that refuse, those whose capacity is only a bound, from 0 and as bytes.
local function unsettled_quotas(checks, refusing)
  local unsettled = ''
  for at = 1, #refusing do
    local number = string.byte(refusing, at)
    if checks[number + 1].is_bound then
      unsettled = unsettled .. string.char(number)
    end
  end
  return unsettled
end
