-- Reads the counters that a call is measured against.
local function read_checks(blob, at)
  local checks, count = {}, nil
  count, at = struct.unpack('<B', blob, at)
  for number = 1, count do
    local check = { weights = {} }
    local shape
    check.holder, check.field, check.window, check.since, check.capacity, shape, at =
      struct.unpack('<Bc8i8i8i8B', blob, at)
    if check.capacity < 0 then
      local field
      field, at = struct.unpack('<c8', blob, at)
      check.quota, check.capacity = 'q' .. field, nil
    end
    check.rate = shape >= 32
    local weighted = shape % 32 >= 16
    for _ = 1, shape % 16 do
      local line
      local weight = 1
      line, at = struct.unpack('<B', blob, at)
      if weighted then
        weight, at = struct.unpack('<i8', blob, at)
      end
      check.weights[line + 1] = weight
    end
    checks[number] = check
  end
  return checks
end
