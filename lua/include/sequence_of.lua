-- The sequence of an outbox id in an epoch, given as text.
local function sequence_of(id, epoch)
  return tonumber(string.sub(id, #epoch + 2))
end
