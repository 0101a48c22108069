-- include cold_holders
-- include reads_zero
-- Marks the counters that a call admitted elsewhere still moves: those in its window, and those that may still enter it. A window
-- that is over is entered no more, so that a later consume passes over it too.
-- Returns what the ledger must tell first, or nothing: whether the tenant is cold, cold subject hashes, cold counters from 0.
local function recorded_checks(holders, checks, ends, now)
  if not holders[0].warm then
    return { tenant = 1, holders = '', counters = '' }
  end
  local counters = ''
  for number, check in ipairs(checks) do
    check.moved = check.current or (now < ends[number] and not check.later)
    local holder = holders[check.scope_index]
    if check.moved and check.missing and not holder.waits and not reads_zero(holders, check) then
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
