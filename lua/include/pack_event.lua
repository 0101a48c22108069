-- Packs an event: what stands before the record's part, then that part as given.
local function pack_event(kind, now, id, flags, rest)
  return struct.pack('<BBi8', 1, kind, now) .. id .. string.char(flags) .. rest
end
