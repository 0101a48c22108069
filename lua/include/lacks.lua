-- Whether a restore must set a field of a hash. A counter that the hash has stays: the booked figure lacks events in
-- quarantine and what a later window counts. A capacity (its name is `q` and the counter's) is replaced by one with a
-- higher version.
local function lacks(stored, name, told)
  return not stored or (#name > 8 and struct.unpack('<i8', stored) < struct.unpack('<i8', told))
end
