-- Reads the lines, from 1, that a counter counts, and the units that it counts for each unit of a line.
local function read_weights(blob, flags, at)
  local count, weighted = flags % 16, flags % 32 >= 16
  if count == 1 and not weighted then
    local line
    line, at = struct.unpack('<B', blob, at)
    return { [line + 1] = 1 }, at
  end
  local weights = {}
  for _ = 1, count do
    local line
    local weight = 1
    line, at = struct.unpack('<B', blob, at)
    if weighted then
      weight, at = struct.unpack('<i8', blob, at)
    end
    weights[line + 1] = weight
  end
  return weights, at
end
