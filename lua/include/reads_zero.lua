-- include knows_subject
-- Whether a field that is missing in a hash was never used in its window.
local function reads_zero(holders, check)
  local holder = holders[check.scope_index]
  if check.began >= math.max(holder.restored_at, check.since) then
    return true
  end
  if holder.untold then
    return (check.rate or check.since <= holder.restored_at) and not knows_subject(holders[0], holder)
  end
  return check.rate
end
