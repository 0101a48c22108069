-- How far the outbox had come in its epoch when the ledger told a state hash, by its header; -1 when that is not known.
local function told_sequence(header)
  return header and #header >= 32 and struct.unpack('<i8', header, 25) or -1
end
