-- Packs a record, as values and their format, as it stands after the event with this sequence. Its body takes the place of the
-- event's rest.
local function pack_record(values, format, sequence, body)
  values[10], values[11 + (values[4] >= 8 and 3 or 2) * values[3]] = sequence, body
  return struct.pack('<' .. format .. 'c0', unpack(values))
end
