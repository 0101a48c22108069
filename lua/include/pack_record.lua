-- Packs a record, from values and their format, as it is after the event with this sequence. Its body takes the place
-- of the event's rest.
local function pack_record(values, format, sequence, body)
  local flags, line_count = values[4], values[3]
  local front = 10 + (flags % 16 >= 8 and 3 or 2) * line_count + (flags % 32 >= 16 and 1 or 0) + (values[1] > 2 and 1 or 0)
  values[10], values[front + 1] = sequence, body
  return struct.pack('<' .. format .. 'c0', unpack(values))
end
