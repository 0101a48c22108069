-- include algorithms
-- include read_weights
-- Reads a record's tenant and line rules, and what a tombstone lacks: subjects, counters, whether it was keyed, and
-- where its tail begins.
local function read_body(record)
  local raw = record.raw
  local core_length, tenant, at = struct.unpack('<I2Bc0', raw, record.body_at + 16)
  local lines, subjects, counters = {}, {}, {}
  record.tenant, record.core_length, record.lines, record.subjects, record.counters = tenant, core_length, lines, subjects, counters
  for line = 1, record.count do
    local meter, decimals, rules, late_within
    meter, decimals, rules, late_within, at = struct.unpack('<Bc0BBI4', raw, at)
    lines[line] = {
      meter = meter, decimals = decimals, late_within = late_within,
      caps = rules % 4 == 1, rejects_excess = rules % 4 == 2, rejects_late = rules % 8 >= 4, unbooked = rules % 32 >= 16,
    }
  end
  if at > #raw then
    return
  end
  local count
  count, at = struct.unpack('<B', raw, at)
  for number = 1, count do
    subjects[number], at = struct.unpack('<c13', raw, at)
  end
  count, at = struct.unpack('<B', raw, at)
  for number = 1, count do
    local scope_index, field, code, flags, began, window_end, cap
    if record.layout % 2 == 1 then
      scope_index, field, began, flags, at = struct.unpack('<Bc8i8B', raw, at)
      code, window_end = CALENDAR, 0
      if flags >= 32 then
        window_end, cap, at = struct.unpack('<i8i8', raw, at)
      end
    else
      scope_index, field, flags, code, at = struct.unpack('<Bc8BB', raw, at)
      if flags >= 32 then
        cap, at = struct.unpack('<i8', raw, at)
      end
    end
    local counter = {
      weights = false, scope_index = scope_index, field = field, algorithm = algorithm_of(code), code = code, mark = 0, began = began,
      window_end = window_end, cap = cap, quota = scope_index == 0 and code == CALENDAR and 'q' .. field, capacity = nil,
      consumed = 0, reserved = 0, next_end = 0, missing = true, current = false, later = false, moved = false, is_new = false,
      unmoved = math.floor(record.unmoved / 2 ^ (number - 1)) % 2 == 1,
    }
    if record.layout % 2 == 0 then
      at = counter.algorithm.read(counter, raw, at)
    end
    counter.weights, at = read_weights(raw, flags, at)
    counters[number] = counter
  end
  record.tail, record.keyed = at, string.byte(raw, at + 1) == 1
end
