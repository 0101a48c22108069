-- What the gate does not know of the checks: nothing, or whether the tenant is cold, the cold subject hashes and the
-- cold counters of warm ones, as bytes. Marks each check whose figures are known.
local function find_cold(holders, checks)
  local cold_holders, cold_counters = {}, {}
  for holder, state in pairs(holders) do
    if holder > 0 and not state.warm then
      cold_holders[#cold_holders + 1] = string.char(holder)
    end
  end
  for number, check in ipairs(checks) do
    local holder = holders[check.holder]
    if holder.warm and holders[0].warm then
      local zero = check.rate or check.window >= math.max(holder.restored_at, check.since)
      check.known = (not check.missing or zero) and check.capacity ~= nil
      if not check.known then
        cold_counters[#cold_counters + 1] = string.char(number - 1)
      end
    end
  end
  local tenant = not holders[0].warm
  if tenant or #cold_holders > 0 or #cold_counters > 0 then
    return { tenant = tenant and 1 or 0, holders = table.concat(cold_holders), counters = table.concat(cold_counters) }
  end
  return nil
end
