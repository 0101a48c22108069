-- The subject hashes, as bytes, that are not of this epoch.
local function cold_holders(holders)
  local cold = ''
  for holder, state in pairs(holders) do
    if holder > 0 and not state.warm then
      cold = cold .. string.char(holder)
    end
  end
  return cold
end
