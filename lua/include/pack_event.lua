-- Packs an event: what every event begins with, values by their format (a record's, where it tells of one), and the rest.
local function pack_event(kind, now, id, flags, values, format, rest)
  values[#values + 1] = rest
  return struct.pack('<BBi8c0B' .. format .. 'c0', 1, kind, now, id, flags, unpack(values))
end
