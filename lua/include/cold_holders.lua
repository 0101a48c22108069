-- The subject hashes, as bytes, of which the ledger must tell first.
local function cold_holders(holders)
  local cold = ''
  for holder, state in pairs(holders) do
    if state.cold then
      cold = cold .. string.char(holder)
    end
  end
  return cold
end
