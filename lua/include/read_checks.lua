-- include algorithms
-- include read_weights
-- Reads the counters that a call is measured against, packed in gate/counters.rs.
local function read_checks(blob, at)
  local checks, count = {}, nil
  count, at = struct.unpack('<B', blob, at)
  for number = 1, count do
    local scope_index, field, since, capacity, flags, code, quota
    scope_index, field, since, capacity, flags, code, at = struct.unpack('<Bc8i8i8BB', blob, at)
    if capacity < 0 then
      quota, capacity = 'q' .. field, nil
    end
    local check = {
      weights = false, scope_index = scope_index, field = field, algorithm = algorithm_of(code), code = code, mark = 0, began = 0,
      window_end = 0,
      since = since, capacity = capacity, quota = quota, rate = flags >= 32, consumed = 0, reserved = 0, next_end = 0, missing = true,
      current = false, later = false, known = false, moved = false,
    }
    at = check.algorithm.read(check, blob, at)
    check.weights, at = read_weights(blob, flags, at)
    checks[number] = check
  end
  return checks
end
