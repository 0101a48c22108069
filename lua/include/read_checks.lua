-- include read_weights
-- Reads the counters that a call is measured against. Every field that a check ever has is named at once: a table that grows
-- field by field is built anew several times.
local function read_checks(blob, at)
  local checks, count = {}, nil
  count, at = struct.unpack('<B', blob, at)
  for number = 1, count do
    local holder, field, window, since, capacity, shape, quota
    holder, field, window, since, capacity, shape, at = struct.unpack('<Bc8i8i8i8B', blob, at)
    if capacity < 0 then
      quota, at = struct.unpack('<c8', blob, at)
      quota, capacity = 'q' .. quota, nil
    end
    local weights
    weights, at = read_weights(blob, shape, at)
    checks[number] = {
      weights = weights, holder = holder, field = field, window = window, since = since, capacity = capacity, quota = quota,
      rate = shape >= 32, consumed = 0, reserved = 0, next_end = 0, missing = true, current = false, later = false, known = false,
      moved = false,
    }
  end
  return checks
end
