-- Packs whole numbers of eight bytes each.
local function pack_units(units)
  return struct.pack('<' .. string.rep('i8', #units), unpack(units))
end
