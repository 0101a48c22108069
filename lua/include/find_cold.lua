-- include cold_holders
-- include reads_zero
-- What is cold for these checks: nothing, or whether the tenant is, the cold subject hashes, and the cold counters of
-- warm hashes, as bytes. Marks each check whose figures are known.
local function find_cold(holders, checks)
  if not holders[0].warm then
    return { tenant = 1, holders = '', counters = '' }
  end
  local counters = ''
  for number = 1, #checks do
    local check = checks[number]
    local holder = holders[check.scope_index]
    check.known = check.capacity ~= nil and not holder.waits and (not check.missing or reads_zero(holders, check))
    if not check.known and not holder.waits then
      if holder.untold then
        holder.cold = true
      else
        counters = counters .. string.char(number - 1)
      end
    end
  end
  local cold = cold_holders(holders)
  if cold == '' and counters == '' then
    return nil
  end
  return { tenant = 0, holders = cold, counters = counters }
end
