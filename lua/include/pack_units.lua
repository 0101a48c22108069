-- Packs whole numbers of eight bytes each.
local function pack_units(units)
  local parts = {}
  for number, value in ipairs(units) do
    parts[number] = struct.pack('<i8', value)
  end
  return table.concat(parts)
end
