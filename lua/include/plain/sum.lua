-- The sum of a counter's lines by their weights, of figures by line. Returns where the lines end, too.
local function plain_sum(packed, flags, at, figures)
  local sum, line, weight = 0, nil, 1
  local weighted = flags % 32 >= 16
  for _ = 1, flags % 16 do
    line, at = struct.unpack('<B', packed, at)
    if weighted then
      weight, at = struct.unpack('<i8', packed, at)
    end
    sum = sum + weight * figures[line + 1]
  end
  return sum, at
end
