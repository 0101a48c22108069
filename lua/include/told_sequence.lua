-- The outbox sequence at a state hash's last restore, from its header; -1 if unknown.
local function told_sequence(header)
  return header and #header >= 32 and struct.unpack('<i8', header, 25) or -1
end
