-- Packs an event: the part that every event has, then values by their format (a record's, if it has one), and the rest.
local function pack_event(kind, now, id, flags, values, format, rest)
  values[#values + 1] = rest
  return struct.pack('<BBi8c0B' .. format .. 'c0', 1, kind, now, id, flags, unpack(values))
end
