-- The cold subject hashes, as bytes: the ledger must restore them first.
local function cold_holders(holders)
  local cold = ''
  for holder, state in pairs(holders) do
    if state.cold then
      cold = cold .. string.char(holder)
    end
  end
  return cold
end
