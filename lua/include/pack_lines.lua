-- Packs held and consumed units per line.
local function pack_lines(record)
  local parts = {}
  for line = 1, record.count do
    parts[line] = struct.pack('<i8i8', record.held[line], record.consumed[line])
  end
  return table.concat(parts)
end
