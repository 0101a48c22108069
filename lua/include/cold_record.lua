-- include cold_holders
-- include knows_subject
-- What is cold of a record's hashes: nothing, or whether the tenant is, and the cold subject hashes, as bytes. A
-- missing counter needs a restore if its record and its window began before the tenant's restore, or at the same
-- instant. If they are younger, a script wrote the counter, and it is missing because its window is over.
local function cold_record(holders, record)
  if not holders[0].warm then
    return { tenant = 1, holders = '' }
  end
  for _, counter in ipairs(record.counters) do
    local holder = holders[counter.scope_index]
    local is_lost = counter.missing and math.max(counter.began, record.born_at) <= holder.restored_at
    if holder.untold and is_lost and counter.algorithm.holds_survive then
      holder.cold = holder.cold or knows_subject(holders[0], holder)
    end
  end
  local cold = cold_holders(holders)
  return cold ~= '' and { tenant = 0, holders = cold } or nil
end
