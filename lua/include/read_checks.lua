-- include algorithms
-- include read_punishment
-- include read_weights
-- Reads the counters that a call may move, packed in gate/counters.rs.
local function read_checks(blob, at)
  local unpack_from = struct.unpack
  local count, quotas, _, scopes_at = unpack_from('<BBB', blob, at)
  local fields_at = scopes_at + count
  local scopes, fields, checks = { string.byte(blob, scopes_at, fields_at - 1) }, { unpack_from(string.rep('c8', count), blob, fields_at) }, {}
  at = fields_at + 8 * count + 9 * quotas
  for number = 1, count do
    local field, quota, capacity, code = fields[number], nil, nil, nil
    capacity, _, code, at = unpack_from('<i8i8B', blob, at)
    if capacity < 0 then
      quota, capacity = 'q' .. field, nil
    end
    local algorithm = algorithm_of(code)
    local check = {
      weights = false, scope_index = scopes[number], field = field, algorithm = algorithm, code = code,
      mark = 0, began = 0, window_end = 0, since = 0, capacity = capacity, quota = quota, rate = false, shadow = false, consumed = 0, reserved = 0,
      next_end = 0, missing = true, current = false, later = false, known = false, moved = false, unmoved = false,
      punishment = false,
    }
    at = algorithm.read(check, blob, at)
    checks[number] = check
  end
  for number = 1, count do
    local check, flags = checks[number], nil
    check.since, flags, at = unpack_from('<i8B', blob, at)
    check.rate, check.shadow = flags % 64 >= 32, flags % 128 >= 64
    if flags >= 128 then
      check.punishment, at = read_punishment(blob, at)
    end
    check.weights, at = read_weights(blob, flags, at)
  end
  return checks
end
