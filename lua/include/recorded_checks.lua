-- include cold_holders
-- Marks the counters that a call admitted elsewhere still moves: those in its window, and those that may still enter it. A window
-- that is over is entered no more, so that a later consume passes over it too.
-- Returns what the ledger must tell first, or nothing: whether the tenant is cold, cold subject hashes, cold counters from 0.
local function recorded_checks(holders, checks, ends, now)
  local warm, cold, counters = holders[0].warm, cold_holders(holders), ''
  for number, check in ipairs(checks) do
    local holder = holders[check.holder]
    check.moved = check.current or (now < ends[number] and not check.later)
    local zero = check.rate or check.window >= math.max(holder.restored_at, check.since)
    if check.moved and check.missing and not zero and holder.warm then
      counters = counters .. string.char(number - 1)
    end
  end
  if warm and cold == '' and counters == '' then
    return nil
  end
  return { tenant = warm and 0 or 1, holders = cold, counters = counters }
end
