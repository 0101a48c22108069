-- include cold_holders
-- include knows_subject
-- What the gate does not know of a record's hashes: nothing, or whether the tenant is cold and the cold subject hashes, as bytes.
-- What a record from before its tenant's restore moved may be missing, as what one of the same time did. What a later one moved is
-- missing only where its window is over.
local function cold_record(holders, record)
  if not holders[0].warm then
    return { tenant = 1, holders = '' }
  end
  for _, counter in ipairs(record.counters) do
    local holder = holders[counter.scope_index]
    local is_lost = counter.missing and math.max(counter.began, record.born_at) <= holder.restored_at
    if holder.untold and is_lost and counter.algorithm.is_restorable then
      holder.cold = holder.cold or knows_subject(holders[0], holder)
    end
  end
  local cold = cold_holders(holders)
  return cold ~= '' and { tenant = 0, holders = cold } or nil
end
