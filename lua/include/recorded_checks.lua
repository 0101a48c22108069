-- include cold_holders
-- include reads_zero
-- Marks the counters that a parked admission still moves: its window is current or can still become so, or it counts
-- work of any time. A window that is over is not entered any more, so that a later consume leaves it out too.
-- Returns what must be restored first, or nothing: whether the tenant is cold, the cold subject hashes, and the cold
-- counters from 0.
local function recorded_checks(holders, checks, ends, now)
  if not holders[0].warm then
    return { tenant = 1, holders = '', counters = '' }
  end
  local counters = ''
  for number, check in ipairs(checks) do
    check.moved = check.current or check.algorithm.is_timeless or (now < ends[number] and not check.later)
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
