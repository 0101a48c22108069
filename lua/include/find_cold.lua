-- include cold_holders
-- What the gate does not know of the checks: nothing, or whether the tenant is cold, the cold subject hashes and the
-- cold counters of warm ones, as bytes. Marks each check whose figures are known.
local function find_cold(holders, checks)
  local warm, cold, counters = holders[0].warm, cold_holders(holders), ''
  for number = 1, #checks do
    local check = checks[number]
    local holder = holders[check.holder]
    if warm and holder.warm then
      check.known = check.capacity ~= nil
        and (not check.missing or check.rate or check.window >= math.max(holder.restored_at, check.since))
      if not check.known then
        counters = counters .. string.char(number - 1)
      end
    end
  end
  if warm and cold == '' and counters == '' then
    return nil
  end
  return { tenant = warm and 0 or 1, holders = cold, counters = counters }
end
