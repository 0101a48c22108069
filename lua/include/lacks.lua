-- Whether a hash is to be told a field. A counter that it has counts on: by the books it would lose what waits in quarantine, and what
-- a later window counts. A capacity (its name is `q` and the counter's) gives way to one with a higher version.
local function lacks(stored, name, told)
  return not stored or (#name > 8 and struct.unpack('<i8', stored) < struct.unpack('<i8', told))
end
