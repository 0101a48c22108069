-- Marks the counters that a call admitted elsewhere still moves: those in its window, and those that may still enter it. A window
-- that is over is entered no more, so that a later consume passes over it too.
-- Returns what the ledger must tell first, or nothing: whether the tenant is cold, cold subject hashes, cold counters from 0.
local function recorded_checks(holders, checks, ends, now)
  local cold_holders, cold_counters = {}, {}
  for holder, state in pairs(holders) do
    if holder > 0 and not state.warm then
      cold_holders[#cold_holders + 1] = string.char(holder)
    end
  end
  for number, check in ipairs(checks) do
    local holder = holders[check.holder]
    check.moved = check.current or (now < ends[number] and not check.later)
    local zero = check.rate or check.window >= math.max(holder.restored_at, check.since)
    if check.moved and check.missing and not zero and holder.warm then
      cold_counters[#cold_counters + 1] = string.char(number - 1)
    end
  end
  local tenant = not holders[0].warm
  if tenant or #cold_holders > 0 or #cold_counters > 0 then
    return { tenant = tenant and 1 or 0, holders = table.concat(cold_holders), counters = table.concat(cold_counters) }
  end
  return nil
end
