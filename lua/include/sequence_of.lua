-- The sequence of an outbox id.
local function sequence_of(id)
  return tonumber(string.match(id, '%-(%d+)$'))
end
