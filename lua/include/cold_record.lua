-- include cold_holders
-- What the gate does not know of a record's hashes: nothing, or whether the tenant is cold and the cold subject hashes, as bytes.
local function cold_record(holders)
  local cold = cold_holders(holders)
  if holders[0].warm and cold == '' then
    return nil
  end
  return { tenant = holders[0].warm and 0 or 1, holders = cold }
end
