-- What the gate does not know of a record's hashes: nothing, or whether the tenant is cold and the cold subject hashes, as bytes.
local function cold_record(holders)
  local cold = {}
  for holder, state in pairs(holders) do
    if holder > 0 and not state.warm then
      cold[#cold + 1] = string.char(holder)
    end
  end
  if holders[0].warm and #cold == 0 then
    return nil
  end
  return { tenant = holders[0].warm and 0 or 1, holders = table.concat(cold) }
end
