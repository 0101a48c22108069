-- include knows_subject
-- Whether a field that a hash lacks was certainly never used in its window.
local function reads_zero(holders, check)
  local holder = holders[check.scope_index]
  if check.began >= check.since and check.began >= holder.restored_at + (holder.untold and 1 or 0) then
    return true
  end
  if holder.untold then
    return (check.rate or check.since <= holder.restored_at) and not knows_subject(holders[0], holder)
  end
  return check.rate
end
